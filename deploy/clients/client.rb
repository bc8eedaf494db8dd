# frozen_string_literal: true

# Reports errors to the sidecar: Arbiter.report_error(error), or in config.ru: use Arbiter::Middleware
# It sends to ARBITER_STATSD_SOCKET (unix datagrams), else to ARBITER_STATSD_LISTEN (UDP), else a thread posts to
# ARBITER_SOCKET or ARBITER_LOCAL_LISTEN (127.0.0.1:9180; off: nowhere). Reports wait for at most 30 s for a sidecar.
require "io/wait"
require "json"
require "socket"

module Arbiter
  KEEP_S = 30 # older errors would count as new ones
  PAUSE_S = 0.1
  TIMEOUT_S = 1
  MOST = 1_000_000 # in one report
  LEVELS = %w[server_error client_error investigation recovered].freeze
  KINDS = 40 # with their messages they fit into one request

  @kept = {} # count and newest message by name and tags, which wait for the sidecar
  @said = []
  @lock = Mutex.new

  # Never raises, never blocks. The message is sent over HTTP only.
  def self.report(count = 1, kind: "unknown", level: "server_error", message: nil)
    level = LEVELS.first unless LEVELS.include?(level)
    kind = kind.to_s.empty? ? "unknown" : kind.to_s.gsub(%r{[^\w.:/-]}, "_")[0, 64]
    message &&= message.to_s[0, 200].encode("UTF-8", invalid: :replace, undef: :replace).scrub
    add("errors", [count, 0].max, { "level" => level, "kind" => kind }, message)
  rescue StandardError
    nil
  end

  # An exception, of the kind of kind_of.
  def self.report_error(error)
    report(kind: kind_of(error), message: "#{error.class}: #{error.message}")
  rescue StandardError # its message may fail
    report(kind: kind_of(error))
  end

  def self.add(name, count, tags = {}, message = nil)
    @lock.synchronize do
      start_afresh unless @pid == Process.pid
      @since = Process.clock_gettime(Process::CLOCK_MONOTONIC) if @kept.empty?
      tags = tags.merge("kind" => "other") if tags["kind"] && @kept.size >= KINDS && !@kept.key?([name, tags])
      keep([name, tags], @kept[[name, tags]], [count, message])
      if datagrams?
        flush
      elsif @thread.nil? || !@thread.alive?
        @thread = Thread.new { post_all }
      end
    end
  rescue StandardError
    nil
  end

  def self.keep(key, older, newer)
    return if @kept.size >= KINDS + 10 && !@kept.key?(key)

    @kept[key] = [[(older&.first || 0) + (newer&.first || 0), MOST].min, newer&.last || older&.last]
  end

  # Logs each text once.
  def self.say(text)
    return if @said.include?(text)

    @said << text
    warn("health-arbiter: #{text}")
  end

  def self.start_afresh
    @pid = Process.pid
    @socket = @thread = nil
    @said.clear
    @kept.clear # in a forked child: the parent sends these
  end

  # -- datagrams, sent by the caller

  def self.datagrams?
    !(ENV.fetch("ARBITER_STATSD_SOCKET", "") + statsd_listen).empty?
  end

  def self.statsd_listen
    listen = ENV.fetch("ARBITER_STATSD_LISTEN", "")
    listen == "off" ? "" : listen
  end

  def self.flush
    2.times do # a new sidecar listens on a new socket
      @socket ||= open_socket
      return send_kept
    rescue IO::WaitWritable
      return
    rescue StandardError
      @socket = nil
    end
    @kept.clear
    at = ENV.fetch("ARBITER_STATSD_SOCKET", "")
    say("no sidecar answers at #{at.empty? ? statsd_listen : at}: the reports are dropped")
  end

  def self.send_kept
    @kept.keys.each do |name, tags|
      tail = tags.empty? ? "|c" : "|c|##{tags.map { |tag, value| "#{tag}:#{value}" }.join(',')}"
      @socket.sendmsg_nonblock("#{name}:#{@kept[[name, tags]].first}#{tail}")
      # Over UDP to this machine the kernel knows at once that nobody listens.
      raise IOError unless @socket.getsockopt(:SOCKET, :ERROR).int.zero?

      @kept.delete([name, tags])
    end
  end

  def self.open_socket
    path = ENV.fetch("ARBITER_STATSD_SOCKET", "")
    return Addrinfo.unix(path, :DGRAM).connect unless path.empty?

    host, _, port = statsd_listen.rpartition(":")
    Addrinfo.udp(host.delete("[]"), port).connect
  end

  # -- HTTP, sent by a thread that ends when nothing is left

  def self.post_all
    pause = PAUSE_S
    loop do
      sleep(pause)
      batch, since = @lock.synchronize { take_batch }
      return if batch.empty?

      pause = PAUSE_S
      next if sent?(batch)

      pause = 1
      @lock.synchronize { put_back(batch, since) }
    end
  rescue StandardError
    nil
  end

  def self.take_batch
    age_s = Process.clock_gettime(Process::CLOCK_MONOTONIC) - @since
    @kept.clear if age_s > KEEP_S || places.empty?
    batch = @kept.dup
    @kept.clear
    @thread = nil if batch.empty? # the next report starts another
    [batch, @since]
  end

  def self.put_back(batch, since)
    batch.each { |key, older| keep(key, older, @kept[key]) }
    @since = since
  end

  # Posts the batch, and removes from it what need not be sent again.
  def self.sent?(batch)
    errors, results = batch.partition { |(name, _), _| name == "errors" }
    objects = errors.map { |(_, tags), (count, text)| { "count" => count, "message" => text }.compact.merge(tags) }
    return false unless objects.empty? || posted?("/errors", objects)

    errors.each { |key, _| batch.delete(key) }
    counts = results.to_h { |(name, _), (count, _)| [name == "requests" ? "ok" : name, count] }
    counts.empty? || posted?("/results", counts)
  end

  def self.posted?(path, content)
    body = JSON.generate(content)
    request = "POST #{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}"
    places.each do |place|
      socket = addrinfo(place).connect(timeout: TIMEOUT_S)
      status = answer(socket, request)
      say("#{place} answers #{status}: it is not the local listener of a sidecar") unless status.match?(/\A(2|503|\z)/)
      return status != "503"
    rescue StandardError
      next
    ensure
      socket&.close
    end
    say("no sidecar answers at #{places.join(' and ')}: reports wait for at most #{KEEP_S} s")
    false
  end

  # The status, or nothing: sent twice, a request could count twice.
  def self.answer(socket, request)
    socket.write(request)
    socket.wait_readable(TIMEOUT_S) ? socket.recv(4096)[9, 3].to_s : ""
  rescue SystemCallError, IOError
    ""
  end

  def self.places
    listen = ENV.fetch("ARBITER_LOCAL_LISTEN", "")
    listen = "127.0.0.1:9180" if listen.empty?
    [ENV.fetch("ARBITER_SOCKET", ""), listen == "off" ? "" : listen].reject(&:empty?)
  end

  def self.addrinfo(place)
    return Addrinfo.unix(place) if place == ENV["ARBITER_SOCKET"]

    host, _, port = place.rpartition(":")
    Addrinfo.tcp(host.delete("[]"), port)
  end

  # Waits until the reports have left, at most for this time. For the end of a program.
  def self.finish(at_most = TIMEOUT_S)
    @thread&.join(at_most)
  rescue StandardError
    nil
  end
  at_exit { finish }

  # Rack: 5xx and exceptions are errors, every request is a result.
  class Middleware
    def initialize(app)
      @app = app
    end

    # Frameworks turn an exception into an answer, and keep it in the environment.
    ANSWERED = %w[action_dispatch.exception sinatra.error rack.exception].freeze

    def call(env)
      status, headers, body = @app.call(env)
      is_failed = status.to_i >= 500
      error = ANSWERED.filter_map { |name| env[name] }.first
      error ? Arbiter.report_error(error) : Arbiter.report(kind: "http_#{status}") if is_failed
      Arbiter.add(is_failed ? "failed" : "requests", 1)
      [status, headers, body]
    rescue StandardError => error
      Arbiter.report_error(error)
      Arbiter.add("failed", 1)
      raise
    end
  end

  DRIVERS = {
    "redis" => /\ARedis/, "mysql" => /\A(Mysql2|Trilogy)/, "postgres" => /\APG::/, "mongodb" => /\AMongo/,
    "rabbitmq" => /\A(Bunny|AMQ)/, "kafka" => /\A(Kafka|Rdkafka)/, "memcached" => /\ADalli/,
    "elasticsearch" => /\A(Elasticsearch|Elastic|OpenSearch)/
  }.freeze

  # The driver that has the class of the exception or of one of its causes, else the name of its class.
  def self.kind_of(error)
    cause = error
    8.times do
      break if cause.nil?

      classes = cause.class.ancestors.map(&:to_s)
      kind, = DRIVERS.find { |_, driver| classes.any? { |name| driver.match?(name) } }
      return kind if kind

      cause = cause.cause
    end
    error.class.name.to_s.gsub("::", ".")
  end
end
