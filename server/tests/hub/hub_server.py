"""A small hub on 127.0.0.1: model information, and files with ETag, commit and Range."""

import hashlib
import json
import re
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "a" * 40


class Hub:
    """Repositories by id: file name to bytes. `cut` breaks connections in the middle of a file."""

    def __init__(self):
        self.repositories = {}
        self.gated = set()
        self.cut = {}
        self.resets = False
        self.requests = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self, with_body=True)

            def do_HEAD(self):
                hub.answer(self, with_body=False)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler, with_body):
        self.requests.append((handler.command, handler.path, handler.headers.get("Range")))
        info = re.fullmatch(r"/api/models/([^/]+/[^/?]+)/revision/([^?/]+)(\?.*)?", handler.path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/([^?]+)", handler.path)
        if info:
            self.information(handler, info[1], info[2])
        elif file:
            self.file(handler, *file.groups(), with_body=with_body)
        else:
            self.error(handler, 404, "EntryNotFound")

    def error(self, handler, status, code):
        body = json.dumps({"error": code}).encode()
        handler.send_response(status)
        handler.send_header("X-Error-Code", code)
        handler.send_header("X-Error-Message", code)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(body)

    def refused(self, handler, repository, revision):
        if repository not in self.repositories:
            self.error(handler, 404, "RepoNotFound")
        elif repository in self.gated:
            self.error(handler, 403, "GatedRepo")
        elif revision not in ("main", COMMIT):
            self.error(handler, 404, "RevisionNotFound")
        else:
            return False
        return True

    def information(self, handler, repository, revision):
        if self.refused(handler, repository, revision):
            return
        siblings = []
        for name, data in self.repositories[repository].items():
            entry = {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
            siblings.append(entry)
        body = json.dumps(
            {
                "_id": "1",
                "id": repository,
                "modelId": repository,
                "sha": COMMIT,
                "private": False,
                "pipeline_tag": "text-generation",
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": siblings,
            }
        ).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def file(self, handler, repository, revision, name, with_body):
        if self.refused(handler, repository, revision):
            return
        data = self.repositories[repository].get(name)
        if data is None:
            self.error(handler, 404, "EntryNotFound")
            return
        etag = hashlib.sha256(data).hexdigest()
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range") or "")
        start = int(asked[1]) if asked else 0
        handler.send_response(206 if asked else 200)
        handler.send_header("ETag", f'"{etag}"')
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("X-Linked-Etag", f'"{etag}"')
        handler.send_header("X-Linked-Size", str(len(data)))
        handler.send_header("Accept-Ranges", "bytes")
        handler.send_header("Content-Length", str(len(data) - start))
        if asked:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        if not with_body:
            return
        cuts = self.cut.get(name, [])
        if cuts and cuts[0] > start:
            handler.wfile.write(data[start : cuts.pop(0)])
            handler.wfile.flush()
            handler.close_connection = True
            if self.resets:
                handler.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                handler.connection.close()
            else:
                handler.connection.shutdown(socket.SHUT_WR)
            return
        handler.wfile.write(data[start:])
