<?php
// Reports the failures of a PHP app to the sidecar: uncaught exceptions, fatal errors, answers of 500 and above.
//   require 'client.php'; Arbiter::watch();        // first in index.php
//   Arbiter::report($exception);                   // an exception that the app itself catches
// A framework that catches all exceptions passes them on from its own handler: Arbiter::report($error);
// It needs PHP 8.1. At the end of the request it posts to ARBITER_SOCKET, else to ARBITER_LOCAL_LISTEN (127.0.0.1:9180;
// off: nowhere), with a limit of 50 ms for each step. Without a sidecar the connection is refused at once.

final class Arbiter
{
    private const LIMIT_S = 0.05;
    private const KINDS = 40;
    private const DRIVERS = [
        'redis' => '/^(Redis|Predis|Relay)/i',
        'mysql' => '/^mysqli/i',
        'mongodb' => '/^MongoDB/i',
        'rabbitmq' => '/^(AMQP|PhpAmqpLib)/i',
        'kafka' => '/^RdKafka/i',
        'memcached' => '/^Memcached/i',
        'elasticsearch' => '/^(Elastic|OpenSearch)/i',
    ];

    private static array $errors = []; // count and newest message of each kind
    private static array $said = [];
    private static bool $isWatching = false;

    /** Reports what becomes of this request: call it once, before anything else. */
    public static function watch(): void
    {
        if (self::$isWatching) {
            return;
        }
        self::$isWatching = true;
        $before = set_exception_handler(null);
        set_exception_handler(static function (Throwable $error) use ($before): void {
            self::report($error);
            if ($before !== null) {
                $before($error);
                return;
            }
            http_response_code(500);
            error_log('Uncaught ' . $error);
        });
        register_shutdown_function(self::finish(...));
    }

    /** Reports one error, of the kind of its driver or else of its class. Never throws. */
    public static function report(Throwable|string $error): void
    {
        $kind = is_string($error) ? $error : self::kind($error);
        $kind = substr(preg_replace('#[^A-Za-z0-9_.:/-]#', '_', $kind), 0, 64) ?: 'unknown';
        self::add($kind, is_string($error) ? null : get_class($error) . ': ' . $error->getMessage());
        if (!self::$isWatching) {
            self::flush();
        }
    }

    private static function add(string $kind, ?string $message): void
    {
        $kind = count(self::$errors) < self::KINDS || isset(self::$errors[$kind]) ? $kind : 'other';
        [$count, $before] = self::$errors[$kind] ?? [0, null];
        self::$errors[$kind] = [$count + 1, $message ?? $before];
    }

    /** The driver that has the class of the exception or of one before it, else the name of its class. */
    public static function kind(Throwable $error): string
    {
        for ($cause = $error; $cause !== null; $cause = $cause->getPrevious()) {
            foreach ([get_class($cause), ...array_values(class_parents($cause))] as $class) {
                foreach (self::DRIVERS as $kind => $pattern) {
                    if (preg_match($pattern, $class)) {
                        return $kind;
                    }
                }
            }
            if ($cause instanceof PDOException) {
                return self::ofPdo($cause);
            }
        }
        return str_replace('\\', '.', get_class($error));
    }

    private static function ofPdo(PDOException $error): string
    {
        if (preg_match('/pgsql|postgres/i', $error->getMessage())) {
            return 'postgres';
        }
        return preg_match('/^SQLSTATE\[HY000\] \[20\d\d\]|mysql/i', $error->getMessage()) ? 'mysql' : 'pdo';
    }

    private static function finish(): void
    {
        $fatal = E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR;
        $last = error_get_last();
        if (self::$errors === [] && $last !== null && ($last['type'] & $fatal)) {
            self::add('fatal_error', 'fatal error: ' . $last['message']);
        }
        $status = http_response_code();
        $isFailed = self::$errors !== [] || (is_int($status) && $status >= 500);
        if ($isFailed && self::$errors === []) {
            self::report("http_$status");
        }
        self::flush();
        if (PHP_SAPI !== 'cli') {
            self::post('/results', ['ok' => $isFailed ? 0 : 1, 'failed' => $isFailed ? 1 : 0]);
        }
    }

    private static function flush(): void
    {
        $errors = [];
        foreach (self::$errors as $kind => [$count, $message]) {
            $text = $message === null ? [] : ['message' => substr($message, 0, 200)];
            $errors[] = ['count' => $count, 'kind' => (string) $kind, ...$text];
        }
        self::$errors = [];
        if ($errors !== []) {
            self::post('/errors', $errors);
        }
    }

    private static function post(string $path, array $content): void
    {
        $socket = getenv('ARBITER_SOCKET') ?: '';
        $listen = getenv('ARBITER_LOCAL_LISTEN') ?: '127.0.0.1:9180';
        $places = [...($socket !== '' ? ["unix://$socket"] : []), ...($listen !== 'off' ? ["tcp://$listen"] : [])];
        $connection = false;
        foreach ($places as $place) {
            $connection = @stream_socket_client($place, $code, $message, self::LIMIT_S);
            if ($connection !== false) {
                break;
            }
        }
        if ($connection === false) {
            if ($places !== []) {
                self::say('no sidecar answers at ' . implode(' and ', $places));
            }
            return;
        }
        stream_set_timeout($connection, 0, (int) (self::LIMIT_S * 1_000_000));
        $body = json_encode($content, JSON_INVALID_UTF8_IGNORE | JSON_UNESCAPED_UNICODE); // half a character may be left
        $head = "POST $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        @fwrite($connection, $head . 'Content-Length: ' . strlen($body) . "\r\n\r\n" . $body);
        $status = substr((string) @fread($connection, 512), 9, 3); // empty: it may have taken it
        fclose($connection);
        if ($status !== '' && $status[0] !== '2' && $status !== '503') {
            $at = substr($place, 6); // without unix:// or tcp://
            self::say("$at answers $status: it is not the local listener of a sidecar");
        }
    }

    /** Logs each text once a request. */
    private static function say(string $text): void
    {
        if (!isset(self::$said[$text])) {
            error_log("health-arbiter: $text");
        }
        self::$said[$text] = true;
    }
}
