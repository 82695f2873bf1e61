"""Requests that inspect_ai collects for Anthropic's batch interface, against a loopback server."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")

from inspect_ai.model import BatchConfig

from harness.policies.inspect_models import InspectPolicy, _status
from tests.api.providers import TEXT, anthropic
from tests.api.server import send, serving
from tests.api.test_inspect_models import INSTALLED, prompt

PATH = "/v1/messages/batches"
FAST = BatchConfig(size=3, send_delay=0.1, tick=0.02)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/count_tokens"):  # inspect measures each request first
            send(self, 200, json.dumps({"input_tokens": 4}))
            return
        with self.server.lock:
            self.server.batches.append(body["requests"])
            send(self, 200, json.dumps(self.info(len(self.server.batches) - 1)))

    def do_GET(self):
        _, _, rest = self.path.partition(PATH + "/")
        number = int(rest.split("_")[1].partition("/")[0])
        with contextlib.suppress(OSError):  # the client has given up
            if rest.endswith("/results"):
                lines = map(self.result, self.server.batches[number])
                send(self, 200, "".join(json.dumps(line) + "\n" for line in lines), Content_Type="application/x-jsonl")
            else:
                send(self, 200, json.dumps(self.info(number)))

    def info(self, number):
        """Describes a batch, which is ready when it is asked for the third time."""
        self.server.polls += 1
        ready = self.server.polls >= 3
        counts = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        return {
            "id": f"batch_{number}",
            "type": "message_batch",
            "processing_status": "ended" if ready else "in_progress",
            "request_counts": counts,
            "created_at": "2026-01-01T00:00:00Z",
            "expires_at": "2026-01-02T00:00:00Z",
            "results_url": f"{self.server.url}{PATH}/batch_{number}/results" if ready else None,
        }

    def result(self, request):
        """Answers a request of a batch with its own last message, or with the error that the server has for it."""
        content = json.dumps(request["params"]["messages"][-1]["content"])
        for word, (kind, text) in self.server.errors.items():
            if word in content:
                error = {"type": "error", "error": {"type": kind, "message": text}, "request_id": None}
                return {"custom_id": request["custom_id"], "result": {"type": "errored", "error": error}}
        message = anthropic(cut=False)
        message["content"][1]["text"] = f"{TEXT} {content}"
        return {"custom_id": request["custom_id"], "result": {"type": "succeeded", "message": message}}

    def log_message(self, *_):
        pass


class Batches(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.batches, self.polls = threading.Lock(), [], 0
        self.errors = {}
        self.url = f"http://127.0.0.1:{self.server_port}"


@pytest.mark.skipif(not INSTALLED["anthropic"], reason="anthropic 2 is not installed")
def test_prompts_of_one_turn_are_a_batch_and_each_gets_its_own_reply(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-0123456789abcdef")
    with serving(Batches()) as server:
        policy = InspectPolicy("anthropic/claude-test", base_url=server.url, batch=FAST, price="1,10", max_retries=0)
        try:
            replies = policy.act([prompt("one"), prompt("two"), prompt("three")])
        finally:
            policy.close()
    assert [len(batch) for batch in server.batches] == [3] and server.polls >= 3
    first, second, third = replies
    assert TEXT in first.text and "one" in first.text and "two" in second.text and "three" in third.text
    assert (first.input_tokens, first.cached_tokens, first.output_tokens) == (100, 60, 12) and first.cost > 0


@pytest.mark.skipif(not INSTALLED["anthropic"], reason="anthropic 2 is not installed")
def test_a_refused_request_of_a_batch_is_reported_as_a_refused_request(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-0123456789abcdef")
    long = "prompt is too long: 210000 tokens > 200000 maximum"
    with serving(Batches()) as server:
        server.errors = {
            "two": ("invalid_request_error", "messages: refused"),
            "three": ("invalid_request_error", long),
        }
        policy = InspectPolicy("anthropic/claude-test", base_url=server.url, batch=FAST, max_retries=0)
        try:
            first, second, third = policy.act([prompt("one"), prompt("two"), prompt("three")])
        finally:
            policy.close()
    assert first.error == "" and TEXT in first.text
    assert second.finish_reason == "refused" and "claude-test answered 400: messages: refused" in second.error
    assert third.finish_reason == "context"


@pytest.mark.parametrize(("code", "status"), [("3", 400), ("14", None), ("404", 404)])
def test_an_error_of_googles_batches_has_the_status_of_its_code(code, status):
    assert _status(RuntimeError(f"The model refuses this (code: {code})")) == status
    assert _status(RuntimeError(f"The model (code: {code}) refuses this")) is None


def test_a_batch_has_no_time_limit_of_its_own():
    def limit(**options):
        policy = InspectPolicy("mockllm/model", timeout=7, **options)
        policy.close()
        return policy._config.attempt_timeout

    assert (limit(), limit(batch=True)) == (7, None)
