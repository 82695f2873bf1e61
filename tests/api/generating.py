"""Loopback server that generates text with a transformers model, in the protocols of vLLM and SGLang.

The server holds real weights, samples from them, loads adapters and full models from folders, and
returns the documented fields. `lacks`, `keeps_old` and `loses` make it behave like an old or broken
server.
"""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.lm.decode import Job, Settings, decode
from tests.api.server import send, serving


class Handler(BaseHTTPRequestHandler):
    server: Generating
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((self.path, body))
            if self.server.is_dead():
                self.close_connection = True
                return
            answer = {
                "/v1/completions": self.server.complete,
                "/v1/load_lora_adapter": self.server.load_adapter,
                "/v1/unload_lora_adapter": self.server.unload_adapter,
                "/update_weights_from_disk": self.server.load_weights,
                "/collective_rpc": self.server.reload_weights,
                "/reset_prefix_cache": lambda body: (200, ""),
            }.get(self.path)
            try:
                status, payload = answer(body) if answer else (404, {"detail": "Not Found"})
            except Exception as error:
                status, payload = 500, {"error": {"message": repr(error)}}
        if self.path in self.server.loses:
            self.server.loses.remove(self.path)
            self.close_connection = True
            return
        with contextlib.suppress(OSError):  # the client has given up
            send(self, status, payload if isinstance(payload, str) else json.dumps(payload))

    def do_GET(self) -> None:
        if self.server.is_dead():
            self.close_connection = True
            return
        send(self, 200, json.dumps({"data": [{"id": name} for name in ["base", *self.server.adapters]]}))

    def log_message(self, *_: object) -> None:
        pass


class Generating(ThreadingHTTPServer):
    """HTTP server with one model.

    `requests` lists (path, body) in order of arrival. `lacks` names fields to omit from answers.
    With `keeps_old` the server reports new weights as loaded but keeps the old ones. `loses` lists
    paths: one request to each is executed but not answered. After `dies_after` completions no request
    is answered any more, as if the process were gone.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.adapters: dict[str, Any] = {}
        self.version = "default"
        self.lacks: set[str] = set()
        self.keeps_old = False
        self.loses: list[str] = []
        self.dies_after = 10**9
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def is_dead(self) -> bool:
        """True once `dies_after` completions were asked for."""
        return sum(path == "/v1/completions" for path, _ in self.requests) > self.dies_after

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        network = self.model
        if body["model"].startswith("envsuite-"):  # SGLang ignores any other name
            if body["model"] not in self.adapters:
                return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
            network = self.adapters[body["model"]]
        job = Job(list(body["prompt"]), body["max_tokens"], body["seed"])
        settings = Settings(
            body["temperature"], body.get("top_p", 1.0), frozenset(body["stop_token_ids"]), tuple(body.get("stop", ()))
        )
        decode(network, [job], settings, lambda ids: self.tokenizer.decode(ids, skip_special_tokens=True))
        choice: dict[str, Any] = {
            "index": 0,
            "text": self.tokenizer.decode(job.ids, skip_special_tokens=True),
            "finish_reason": job.finish_reason,
            "token_ids": job.ids,
            "prompt_token_ids": list(body["prompt"]),
            "logprobs": {"token_logprobs": job.logprobs, "tokens": ["" for _ in job.ids]},
        }
        choice = {name: value for name, value in choice.items() if name not in self.lacks}
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(job.ids)}
        payload = {"object": "text_completion", "model": body["model"], "choices": [choice], "usage": usage}
        if "metadata" not in self.lacks:
            payload["metadata"] = {"weight_version": self.version}
        return 200, payload

    def load_adapter(self, body: dict[str, Any]) -> tuple[int, Any]:
        name, path = body["lora_name"], body["lora_path"]
        if "lora" in self.lacks:
            return 404, {"detail": "Not Found"}
        if name in self.adapters:
            return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded."}}
        if self.keeps_old and self.adapters:
            self.adapters[name] = next(iter(self.adapters.values()))
        else:
            base = AutoModelForCausalLM.from_pretrained(self.model.config._name_or_path, dtype=torch.float32)
            self.adapters[name] = PeftModel.from_pretrained(base, path).eval()
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def unload_adapter(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["lora_name"] not in self.adapters:
            return 404, {"error": {"message": f"The lora adapter '{body['lora_name']}' cannot be found."}}
        if not self.keeps_old:
            del self.adapters[body["lora_name"]]
        return 200, f"Success: LoRA adapter '{body['lora_name']}' removed successfully."

    def load_weights(self, body: dict[str, Any]) -> tuple[int, Any]:
        if not Path(body["model_path"]).is_dir():
            return 200, {"success": False, "message": f"Failed to load {body['model_path']}."}
        self.version = body["weight_version"]
        if not self.keeps_old:
            self.model = AutoModelForCausalLM.from_pretrained(body["model_path"], dtype=torch.float32).eval()
        return 200, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}

    def reload_weights(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["method"] != "reload_weights" or "dev" in self.lacks:
            return 404, {"detail": "Not Found"}
        if not self.keeps_old:
            path, head = body["kwargs"]["weights_path"], self.model.get_output_embeddings().weight
            self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
            files = [safe_open(file, "pt") for file in Path(path).glob("*.safetensors")]
            if "lm_head.weight" not in {name for file in files for name in file.keys()}:  # noqa: SIM118
                self.model.get_output_embeddings().weight = head  # vLLM's packed copy: only the head itself renews it
        return 200, {"results": [None]}


def generating(folder: Path) -> contextlib.AbstractContextManager[Generating]:
    return serving(Generating(folder))
