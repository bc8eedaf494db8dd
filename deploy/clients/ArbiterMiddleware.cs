// Reports the requests of an ASP.NET Core app to the sidecar: answers of 500 and above and exceptions are errors.
//   app.UseMiddleware<ArbiterMiddleware>();   // first, before UseExceptionHandler
//   ArbiterMiddleware.Report(exception);      // an exception that the app itself catches
// It needs .NET 8 and nothing else. A task posts to ARBITER_SOCKET or to ARBITER_LOCAL_LISTEN (127.0.0.1:9180; off:
// nowhere). The app never waits for it.
#nullable enable
using System;
using System.Collections.Generic;
using System.Linq;
using System.Net.Http;
using System.Net.Http.Json;
using System.Net.Sockets;
using System.Text.RegularExpressions;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Diagnostics;
using Microsoft.AspNetCore.Http;

public sealed class ArbiterMiddleware(RequestDelegate next)
{
    private const int Most = 1_000_000; // in one report
    private const int Kinds = 40; // with their messages they fit into one request
    private static readonly TimeSpan Keep = TimeSpan.FromSeconds(30); // older errors would count as new ones
    private static readonly (string Kind, string[] Namespaces)[] Drivers =
    [
        ("redis", ["StackExchange.Redis", "ServiceStack.Redis"]),
        ("mysql", ["MySql.", "MySqlConnector"]),
        ("postgres", ["Npgsql"]),
        ("mongodb", ["MongoDB."]),
        ("rabbitmq", ["RabbitMQ."]),
        ("kafka", ["Confluent.Kafka"]),
        ("memcached", ["Enyim."]),
        ("elasticsearch", ["Elastic", "Nest", "OpenSearch"]),
    ];
    private static readonly object Lock = new();
    private static readonly HttpClient Client = NewClient();
    private static readonly HashSet<string> Said = [];
    private static Dictionary<string, Sum> errors = [];
    private static int ok, failed;
    private static bool isPosting;

    /// <summary>How often, and the newest message.</summary>
    private readonly record struct Sum(int Count, string? Message);

    public async Task InvokeAsync(HttpContext context)
    {
        try
        {
            await next(context);
        }
        catch (OperationCanceledException) when (context.RequestAborted.IsCancellationRequested)
        {
            throw; // the client has gone
        }
        catch (Exception error)
        {
            Add(KindOf(error), error, 0, 1);
            throw;
        }
        var status = context.Response.StatusCode;
        var handled = context.Features.Get<IExceptionHandlerFeature>()?.Error;
        if (status < 500) Add(null, null, 1, 0);
        else Add(handled is null ? $"http_{status}" : KindOf(handled), handled, 0, 1);
    }

    /// <summary>Reports one error, of the kind of its driver or else of its class. Never waits, never throws.</summary>
    public static void Report(Exception error) => Add(KindOf(error), error, 0, 0);

    /// <summary>The driver whose namespace has the exception or one inside it, else the name of its class.</summary>
    public static string KindOf(Exception error)
    {
        for (Exception? cause = error; cause is not null; cause = cause.InnerException)
        {
            var name = cause.GetType().FullName ?? "";
            foreach (var (kind, namespaces) in Drivers)
                if (namespaces.Any(start => name.StartsWith(start, StringComparison.Ordinal))) return kind;
        }
        return error.GetType().Name;
    }

    private static string? Message(Exception? error)
    {
        try
        {
            var text = error is null ? null : $"{error.GetType().Name}: {error.Message}";
            return text?[..Math.Min(200, text.Length)];
        }
        catch (Exception)
        {
            return null; // an exception may fail to say what it is
        }
    }

    private static void Add(string? kind, Exception? error, int succeeded, int unsuccessful)
    {
        var message = Message(error);
        lock (Lock)
        {
            if (kind is not null)
            {
                var word = Regex.Replace(kind, "[^A-Za-z0-9_.:/-]", "_");
                word = word[..Math.Min(64, word.Length)];
                if (!errors.ContainsKey(word) && errors.Count >= Kinds) word = "other";
                var (count, before) = errors.GetValueOrDefault(word);
                errors[word] = new Sum(Math.Min(Most, count + 1), message ?? before);
            }
            ok = Math.Min(Most, ok + succeeded);
            failed = Math.Min(Most, failed + unsuccessful);
            if (isPosting) return;
            isPosting = true;
        }
        _ = Task.Run(PostAll);
    }

    private static async Task PostAll()
    {
        while (true)
        {
            await Task.Delay(100);
            Dictionary<string, Sum> batch;
            int succeeded, unsuccessful;
            lock (Lock)
            {
                if (errors.Count == 0 && ok + failed == 0)
                {
                    isPosting = false;
                    return;
                }
                (batch, succeeded, unsuccessful) = (errors, ok, failed);
                (errors, ok, failed) = (new Dictionary<string, Sum>(), 0, 0);
            }
            var since = DateTime.UtcNow;
            var reports = batch
                .Select(each => new { count = each.Value.Count, kind = each.Key, message = each.Value.Message })
                .ToArray();
            while (reports.Length > 0 && DateTime.UtcNow - since < Keep && !await IsPosted("/errors", reports))
                await Task.Delay(1000);
            if (succeeded + unsuccessful > 0) await IsPosted("/results", new { ok = succeeded, failed = unsuccessful });
        }
    }

    /// <summary>Whether the sidecar took it, or refused it for good.</summary>
    private static async Task<bool> IsPosted(string path, object content)
    {
        if (SocketPath == "" && Listen == "off") return true;
        try
        {
            using var response = await Client.PostAsJsonAsync($"http://localhost{path}", content);
            var status = (int)response.StatusCode;
            if (!response.IsSuccessStatusCode && status != 503)
                Say($"{Place} answers {status}: it is not the local listener of a sidecar");
            return status != 503;
        }
        catch (Exception error) when (error is HttpRequestException or TaskCanceledException)
        {
            Say($"no sidecar answers at {Place}: reports wait for at most 30 s");
            return false;
        }
    }

    /// <summary>Logs each text once.</summary>
    private static void Say(string text)
    {
        if (Said.Add(text)) Console.Error.WriteLine($"health-arbiter: {text}");
    }

    private static string SocketPath => Environment.GetEnvironmentVariable("ARBITER_SOCKET") ?? "";

    private static string Listen =>
        Environment.GetEnvironmentVariable("ARBITER_LOCAL_LISTEN") is { Length: > 0 } place ? place : "127.0.0.1:9180";

    private static string Place => SocketPath != "" ? SocketPath : Listen;

    private static HttpClient NewClient() => new(new SocketsHttpHandler
    {
        ConnectCallback = async (_, stop) =>
        {
            if (SocketPath != "")
            {
                var local = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
                await local.ConnectAsync(new UnixDomainSocketEndPoint(SocketPath), stop);
                return new NetworkStream(local, ownsSocket: true);
            }
            var place = new Uri($"http://{Listen}");
            var remote = new Socket(SocketType.Stream, ProtocolType.Tcp);
            await remote.ConnectAsync(place.DnsSafeHost, place.Port, stop);
            return new NetworkStream(remote, ownsSocket: true);
        },
    })
    { Timeout = TimeSpan.FromSeconds(1) };
}
