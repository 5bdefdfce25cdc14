"""A hub on this machine: the parts of Hugging Face's and ModelScope's APIs that clients download by, and the faults of real ones."""
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

LARGE = 64 * 1024  # from here on a file is kept by its sha256, as with Git LFS


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    """Files at revisions. `token`: who may read; `gated`: says so to others."""

    def __init__(self, files, token=None, gated=False):
        self.token, self.gated, self.commits, self.refs = token, gated, {}, {}
        self.commit(files)

    def commit(self, files, ref="main"):
        sha = hashlib.sha1(repr(sorted((n, git_hash(d)) for n, d in files.items())).encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.refs[ref] = sha
        return sha

    def find(self, revision):
        revision = {"master": "main"}.get(revision, revision)
        return self.refs.get(revision, revision if revision in self.commits else None)


class LocalHub:
    """Serves both APIs; `storage` is where large files are redirected to (a second host, as a CDN), None: from here."""

    def __init__(self, storage=None, name="hub", host="127.0.0.1"):
        self.models, self.datasets, self.storage, self.name = {}, {}, storage, name
        self.log = []          # (method, path, headers) of every request
        self.served = {}       # bytes sent, by file
        self.blobs = {}        # of a CDN: data by hash
        self.stop_after = {}   # path: bytes after which the connection breaks, once; a negative number: bytes that come at all
        self.wrong = {}        # path: the bytes that are sent instead
        self.refuses = {}      # path: the status that it is answered with, and how often
        self.no_range = False
        self.delay = 0.0       # seconds before each 64 KiB
        self.busy = 0          # answers so often
        self.busy_answer = (503, {})  # with this status and these headers
        self.breaks = {}       # part of a path: how often the connection breaks there, without an answer
        self.loops = False     # each page of a listing names itself as the next
        self.extra = []        # entries that a listing gets beside the real ones
        self.page = 1000       # entries of a page
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

            def handle_error(self, *args):
                pass  # clients that are killed

        self.server = Server((host, 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://{host}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def forget(self):
        self.log, self.served = [], {}

    def requests(self, part=""):
        return [path for _, path, _ in self.log if part in path]

    # One request.

    def answer(self, h):
        self.log.append((h.command, h.path, dict(h.headers)))
        if self.busy > 0:
            self.busy -= 1
            return self.send(h, self.busy_answer[0], b"busy", self.busy_answer[1])
        for part, times in self.breaks.items():
            if part in h.path and times > 0:
                self.breaks[part] = times - 1
                h.close_connection = True
                return h.connection.shutdown(2)
        try:
            url = urlsplit(h.path)
            path, query = unquote(url.path), {k: v[0] for k, v in parse_qs(url.query).items()}
            if path.startswith("/cdn/"):
                data = self.blobs.get(path.removeprefix("/cdn/"))
                return self.send(h, 404, b"<html>") if data is None else self.send_file(h, path.removeprefix("/cdn/"), data, {})
            if path.startswith("/api/v1/"):
                return self.modelscope(h, path.removeprefix("/api/v1/"), query)
            return self.huggingface(h, path.lstrip("/"), query)
        except (BrokenPipeError, ConnectionResetError):
            h.close_connection = True

    def send(self, h, status, body=b"", headers=None):
        h.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            h.send_header(key, value)
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def send_json(self, h, value, headers=None, status=200):
        self.send(h, status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def send_file(self, h, name, data, headers):
        status, times = self.refuses.get(name, (0, 0))
        if times > 0:
            self.refuses[name] = (status, times - 1)
            return self.send(h, status, b"<html>")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", h.headers.get("Range") or "")
        begin, end, status = 0, len(data), 200
        if wanted and not self.no_range:
            begin, status = int(wanted[1]), 206
            end = min(end, int(wanted[2]) + 1) if wanted[2] else end
            if begin >= len(data):
                return self.send(h, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
            headers = {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"}
        h.send_response(status)
        for key, value in {"Accept-Ranges": "bytes", **headers, "Content-Length": str(end - begin)}.items():
            h.send_header(key, value)
        h.end_headers()
        if h.command == "HEAD":
            return
        body = self.wrong.get(name, data)[begin:end]
        stop = self.stop_after.get(name)
        if stop is not None and stop >= 0:
            del self.stop_after[name]
        elif stop is not None:
            stop = max(0, -stop - self.served.get(name, 0))
        for at in range(0, len(body), 65536):
            block = body[at:at + 65536]
            if stop is not None and at + len(block) > stop:
                block = block[:max(0, stop - at)]
            if self.delay:
                time.sleep(self.delay)
            h.wfile.write(block)
            self.served[name] = self.served.get(name, 0) + len(block)
            if stop is not None and at + 65536 > stop:
                h.wfile.flush()
                h.close_connection = True
                h.connection.shutdown(2)
                return

    # Who may read.

    def refused(self, h, repository, modelscope=False):
        given = (h.headers.get("Authorization") or "").removeprefix("Bearer ")
        cookie = re.search(r"m_session_id=([^;]+)", h.headers.get("Cookie") or "")
        given = given or (cookie[1] if cookie else "")
        known = [r.token for r in [*self.models.values(), *self.datasets.values()] if r.token]
        if given and given not in known:
            self.send_json(h, {"error": f"Invalid credentials: {given}"}, {"X-Error-Message": "Invalid credentials in Authorization header"}, 401)
        elif repository is None or (repository.token and given != repository.token and not repository.gated):
            if modelscope:
                self.send_json(h, {"Code": 10010205001, "Message": "the model does not exist", "Success": False}, status=404)
            else:
                self.send_json(h, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
                               404 if given else 401)
        elif repository.gated and given != repository.token:
            self.send_json(h, {"error": "gated"}, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted"},
                           403 if given else 401)
        else:
            return False
        return True

    # Hugging Face.

    def huggingface(self, h, path, query):
        api = re.fullmatch(r"api/(models|datasets)/([^/]+/[^/]+)(?:/(.*))?", path)
        if api:
            return self.huggingface_api(h, getattr(self, api[1]).get(api[2]), api[2], api[3] or "", query)
        file = re.fullmatch(r"(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        repository = (self.datasets if file and file[1] else self.models).get(file[2]) if file else None
        if self.refused(h, repository):
            return None
        commit = repository.find(unquote(file[3]))
        if commit is None:
            return self.send_json(h, {"error": "revision"}, {"X-Error-Code": "RevisionNotFound"}, 404)
        data = repository.commits[commit].get(file[4])
        if data is None:
            return self.send_json(h, {"error": "entry"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, 404)
        large = len(data) >= LARGE
        etag = hashlib.sha256(data).hexdigest() if large else git_hash(data)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}
        if large and self.storage:
            key = file[4]
            self.storage.blobs[key] = data
            return self.send(h, 302, b"", {**headers, "X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(data)),
                                           "Location": f"{self.storage.url}/cdn/{quote(key)}?Signature=signed-secret"})
        return self.send_file(h, file[4], data, headers)

    def huggingface_api(self, h, repository, name, what, query):
        if self.refused(h, repository):
            return None
        if what == "refs":
            names = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for n, c in repository.refs.items()]
            return self.send_json(h, {"branches": names, "tags": [], "converts": []})
        kind, _, revision = what.partition("/")
        revision, _, folder = (revision or "main").partition("/")
        commit = repository.find(unquote(revision))
        if commit is None:
            return self.send_json(h, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"}, 404)
        files = repository.commits[commit]
        if kind != "tree":
            return self.send_json(h, {"_id": "0" * 24, "id": name, "modelId": name, "sha": commit, "private": False, "gated": False, "disabled": False,
                                      "downloads": 0, "likes": 0, "tags": [], "siblings": [{"rfilename": n} for n in files]})
        entries = [self.tree_entry(n, d) for n, d in sorted(files.items())] + self.extra
        begin = int(query.get("cursor", 0))
        more = {"Link": f'<{self.url}/{h.path.lstrip("/").split("?")[0]}?recursive=true&expand=false&cursor={begin + self.page}>; rel="next"'}
        if self.loops:
            more = {"Link": f'<{self.url}{h.path}>; rel="next"'}
        return self.send_json(h, entries[begin:begin + self.page], more if self.loops or begin + self.page < len(entries) else {})

    @staticmethod
    def tree_entry(name, data):
        entry = {"type": "file", "path": name, "size": len(data), "oid": git_hash(data)}
        if len(data) >= LARGE:
            entry["oid"] = git_hash(b"pointer" + name.encode())
            entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return entry

    # ModelScope.

    def modelscope(self, h, path, query):
        api = re.fullmatch(r"(models|datasets)/([^/]+/[^/]+?)(?:/(repo/files|repo/tree|repo|revisions))?", path)
        if api is None:
            return self.send_json(h, {"Code": 404, "Message": "no such path", "Success": False}, status=404)
        repository = getattr(self, api[1]).get(api[2])
        if self.refused(h, repository, modelscope=True):
            return None
        done = {"Code": 200, "Success": True, "Message": "", "RequestId": "x"}
        if api[3] is None:
            return self.send_json(h, {**done, "Data": {"Name": api[2], "Path": api[2]}})
        if api[3] == "revisions":
            return self.send_json(h, {**done, "Data": {"RevisionMap": {"Branches": [{"Revision": n} for n in repository.refs], "Tags": []}}})
        commit = repository.find(query.get("Revision", "master"))
        if commit is None:
            return self.send_json(h, {"Code": 10010205002, "Message": "the revision does not exist", "Success": False}, status=404)
        files = repository.commits[commit]
        if api[3] == "repo":
            name = query["FilePath"]
            if name not in files:
                return self.send_json(h, {"Code": 404, "Message": "no such file", "Success": False}, status=404)
            if self.storage and len(files[name]) >= LARGE:
                self.storage.blobs[name] = files[name]
                return self.send(h, 302, b"", {"Location": f"{self.storage.url}/cdn/{quote(name)}?Signature=signed-secret"})
            return self.send_file(h, name, files[name], {})
        folders = sorted({str(p) for n in files for p in Path(n).parents if str(p) != "."})
        entries = [{"Name": Path(n).name, "Path": n, "Type": "tree", "Size": 0, "Sha256": "", "Revision": commit} for n in folders]
        entries += [{"Name": Path(n).name, "Path": n, "Type": "blob", "Size": len(d), "Sha256": hashlib.sha256(d).hexdigest(),
                     "Revision": commit, "IsLFS": len(d) >= LARGE} for n, d in sorted(files.items())]
        if api[3] == "repo/tree":
            page, size = int(query.get("PageNumber", 1)), int(query.get("PageSize", 200))
            entries = entries[(page - 1) * size:page * size]
        return self.send_json(h, {**done, "Data": {"Files": entries, "IsVisual": 0}})
