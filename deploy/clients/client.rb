# frozen_string_literal: true

# Reports errors to the sidecar: Arbiter.report(kind: "redis"), or in config.ru and Rails: use Arbiter::Middleware
# It sends to ARBITER_STATSD_SOCKET (unix datagrams), else to ARBITER_STATSD_LISTEN (UDP), else nowhere.
require "socket"

module Arbiter
  @kept = Hash.new(0) # counts by line, sent with a later call if the sidecar's queue is full
  @lock = Mutex.new

  # Never raises, never blocks. Reports are dropped while there is no sidecar.
  def self.report(count = 1, kind: "unknown", level: "server_error")
    add("errors", count, "|c|#level:#{level},kind:#{kind.to_s.gsub(%r{[^\w.:/-]}, '_')[0, 64]}")
  end

  def self.add(name, count, tail = "|c")
    @lock.synchronize do
      start_afresh unless @pid == Process.pid
      @kept[[name, tail]] += count if @kept.size < 100 || @kept.key?([name, tail])
      flush
    end
  rescue StandardError
    nil
  end

  def self.start_afresh
    @pid = Process.pid
    @socket = nil
    @kept.clear # in a forked child: the parent sends these
  end

  def self.flush
    2.times do # a new sidecar listens on a new socket
      @socket ||= open_socket
      return @socket ? send_kept : @kept.clear
    rescue IO::WaitWritable
      return
    rescue StandardError
      @socket = nil
    end
    @kept.clear
  end

  def self.send_kept
    @kept.keys.each do |name, tail|
      @socket.sendmsg_nonblock("#{name}:#{@kept[[name, tail]]}#{tail}")
      @kept.delete([name, tail])
    end
  end

  def self.open_socket
    path = ENV.fetch("ARBITER_STATSD_SOCKET", "")
    return Addrinfo.unix(path, :DGRAM).connect unless path.empty?

    host, _, port = ENV.fetch("ARBITER_STATSD_LISTEN", "").rpartition(":")
    Addrinfo.udp(host.delete("[]"), port).connect unless host.empty?
  end

  # Rack: 5xx and exceptions are errors, every request is a result.
  class Middleware
    def initialize(app)
      @app = app
    end

    def call(env)
      status, headers, body = @app.call(env)
      Arbiter.report(kind: "http_#{status}") if status.to_i >= 500
      Arbiter.add(status.to_i >= 500 ? "failed" : "requests", 1)
      [status, headers, body]
    rescue StandardError => error
      Arbiter.report(kind: error.class.name.to_s.gsub("::", "."))
      Arbiter.add("failed", 1)
      raise
    end
  end
end
