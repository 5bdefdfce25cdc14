"""What lies between qft and a hub: servers that are busy or break off, proxies, addresses that are not encrypted. Waits are as long as
servers ask, said once, and end."""
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from common import Report, arguments
from hub_faults import Fetcher, files
from local_hub import LocalHub, Repository


def check_waits(report, hub, fetch):
    hub.models["Acme/busy"] = Repository(files(100_000, seed=5))
    hub.busy = 1
    report.equal("a server that is busy is asked again", fetch("Acme/busy").returncode, 0)
    for header in [{"Retry-After": "2"}, {"RateLimit": '"api";r=0;t=2'}]:
        hub.busy, hub.busy_answer = 1, (429, header)
        begun = time.monotonic()
        result = fetch("Acme/busy")
        report.holds(f"too many requests, {header}: it waits as long, and says so once", result.returncode == 0 and time.monotonic() - begun >= 2
                     and result.stderr.count("answers 429") == 1 and "trying again in 2 s" in result.stderr, result.stderr)
    hub.busy, hub.busy_answer = 1000, (503, {})
    result = fetch("Acme/busy", "--patience", 1)
    report.holds("one that stays busy: an error when that took as long as --patience", result.returncode == 1 and "answers 503" in result.stderr, result.stderr)
    hub.busy, hub.page, hub.breaks = 0, 2, {"cursor=2": 2}
    hub.models["Acme/paged"] = Repository(files(1000, seed=13))
    result = fetch("Acme/paged")
    report.equal("a connection that breaks in the middle of a listing", (result.returncode, hub.breaks), (0, {"cursor=2": 0}))
    hub.loops, hub.page = True, 1000
    result = fetch("Acme/paged")
    report.holds("a listing that never ends", result.returncode == 1 and "never ends" in result.stderr, result.stderr)
    hub.loops = False
    result = fetch("Acme/paged", HF_HUB_OFFLINE="1")
    report.holds("HF_HUB_OFFLINE where the cache has it: its folder", result.returncode == 0 and Path(result.stdout.strip()).is_dir(), result.stderr)


class Proxy:
    """Passes requests on, and counts them."""

    def __init__(self):
        self.seen = seen = []
        import urllib.request

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_GET(self):
                seen.append(self.path)
                request = urllib.request.Request(self.path, headers={k: v for k, v in self.headers.items() if k.lower() not in ("host", "proxy-connection")})
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(request) as answer:
                    self.send_response(answer.status)
                    for key, value in answer.headers.items():
                        self.send_header(key, value)
                    self.end_headers()
                    self.wfile.write(answer.read())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def check_proxy(report, hub, fetch):
    proxy = Proxy()
    hub.models["Acme/far"] = Repository(files(1000, seed=11))
    for key in ["http_proxy", "HTTP_PROXY"]:
        proxy.seen.clear()
        result = fetch("Acme/far", "--to", fetch.home / key, **{key: proxy.url})
        report.holds(f"{key}: all requests go by it", result.returncode == 0 and len(proxy.seen) >= 5, result.stderr)
    result = fetch("Acme/far", "--to", fetch.home / "no-proxy", http_proxy="http://me:proxysecret@127.0.0.1:9")
    report.holds("a proxy that is not there: said, without its password", result.returncode == 1 and "proxysecret" not in result.stderr, result.stderr)
    result = fetch("Acme/far", "--to", fetch.home / "direct", http_proxy="http://127.0.0.1:9", no_proxy="127.0.0.1")
    report.equal("no_proxy", result.returncode, 0)


def check_downgrade(report, hub, fetch):
    """An encrypted hub whose listing is redirected to one that is not: what that states of files could be anybody's."""
    key, certificate = fetch.home / "key.pem", fetch.home / "cert.pem"
    made = shutil.which("openssl") and subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                                                       "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], capture_output=True)
    if not made or made.returncode != 0:
        print("skipped: no openssl here")
        return

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", hub.url + self.path)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    result = fetch("Acme/far", "--to", fetch.home / "downgrade", HF_ENDPOINT=f"https://127.0.0.1:{server.server_port}", CURL_CA_BUNDLE=str(certificate))
    report.holds("an https hub that redirects its listing to http: refused", result.returncode == 1 and "is not encrypted" in result.stderr, result.stderr)


def main():
    args = arguments()
    report = Report()
    hub = LocalHub()
    with tempfile.TemporaryDirectory() as tmp:
        fetch = Fetcher(args.build / "bin/qft", hub, tmp)
        check_waits(report, hub, fetch)
        check_proxy(report, hub, fetch)
        check_downgrade(report, hub, fetch)
    report.finish()


if __name__ == "__main__":
    main()
