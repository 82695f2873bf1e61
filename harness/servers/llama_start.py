"""Starts llama.cpp's HTTP server from the Python module xllamacpp, with the flags of llama-server.

Runs in the environment that has xllamacpp, which is not this project's: it imports nothing else.
"""

import argparse
import threading

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    for flag in ("ctx-size", "parallel", "threads", "gpu-layers", "port"):
        parser.add_argument(f"--{flag}", type=int, required=True)
    parser.add_argument("--jinja", action="store_true", help="always on")
    parser.add_argument("--chat-template-file", type=argparse.FileType())
    args = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias, params.port = args.model, args.alias, args.port
    params.n_ctx, params.n_parallel, params.n_gpu_layers = args.ctx_size, args.parallel, args.gpu_layers
    params.cpuparams.n_threads = args.threads
    params.use_jinja = True
    if args.chat_template_file:
        params.chat_template = args.chat_template_file.read()
    server = xllamacpp.Server(params)  # answers as long as this object exists
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main()
