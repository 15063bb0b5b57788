"""A language model for trying limits: it speaks the wire forms of OpenAI, Anthropic and Gemini, streamed and not.

    python3 upstream.py [ADDRESS:PORT]

Every answer is the word `tide`, repeated. It uses 20 tokens of input and 20 of output, or as many of output as the request's maximum
allows, if that is less. Needs nothing but Python.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

INPUT, OUTPUT = 20, 20


def openai_chat(call, words):
    usage = {"prompt_tokens": INPUT, "completion_tokens": len(words), "total_tokens": INPUT + len(words)}
    base = {"id": "chatcmpl-1", "created": int(time.time()), "model": call.asked.get("model", "tide-1")}
    if not call.asked.get("stream"):
        message = {"role": "assistant", "content": " ".join(words)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return call.answer({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
    wants_usage = (call.asked.get("stream_options") or {}).get("include_usage")
    base["object"] = "chat.completion.chunk"
    with call.events() as send:
        for word in words:
            choice = {"index": 0, "delta": {"role": "assistant", "content": word + " "}, "finish_reason": None}
            send({**base, "choices": [choice]})
        send({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if wants_usage:
            send({**base, "choices": [], "usage": usage})
        send("[DONE]")


def openai_responses(call, words):
    usage = {"input_tokens": INPUT, "output_tokens": len(words), "total_tokens": INPUT + len(words),
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    content = {"type": "output_text", "text": " ".join(words), "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [content]}
    done = {"id": "resp_1", "object": "response", "created_at": int(time.time()), "status": "completed", "model": "tide-1",
            "output": [message], "usage": usage, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    if not call.asked.get("stream"):
        return call.answer(done)
    with call.events() as send:
        send({"type": "response.created", "sequence_number": 0, "response": {**done, "status": "in_progress", "usage": None}})
        for number, word in enumerate(words, 1):
            send({"type": "response.output_text.delta", "sequence_number": number, "item_id": "msg_1", "output_index": 0,
                  "content_index": 0, "delta": word + " ", "logprobs": []})
        send({"type": "response.completed", "sequence_number": len(words) + 1, "response": done})


def openai_embeddings(call, _):
    item = {"object": "embedding", "index": 0, "embedding": [0.1, 0.2, 0.3]}
    usage = {"prompt_tokens": INPUT, "total_tokens": INPUT}
    call.answer({"object": "list", "data": [item], "model": "tide-1", "usage": usage})


def anthropic_messages(call, words):
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": call.asked.get("model", "tide-1"),
               "stop_sequence": None}
    if not call.asked.get("stream"):
        text = {"type": "text", "text": " ".join(words)}
        usage = {"input_tokens": INPUT, "output_tokens": len(words)}
        return call.answer({**message, "content": [text], "stop_reason": "end_turn", "usage": usage})
    with call.events(named=True) as send:
        usage = {"input_tokens": INPUT, "output_tokens": 1}
        send({"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}})
        send({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        for word in words:
            send({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word + " "}})
        send({"type": "content_block_stop", "index": 0})
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        send({"type": "message_delta", "delta": delta, "usage": {"output_tokens": len(words)}})
        send({"type": "message_stop"})


def gemini(call, words):
    def part(text, **more):
        return {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **more}

    usage = {"promptTokenCount": INPUT, "candidatesTokenCount": len(words), "totalTokenCount": INPUT + len(words)}
    last = {"candidates": [part(" ".join(words), finishReason="STOP")], "usageMetadata": usage, "modelVersion": "tide-1"}
    if ":stream" not in call.path:
        return call.answer(last)
    started = {"promptTokenCount": INPUT, "totalTokenCount": INPUT}
    chunks = [{"candidates": [part(word + " ")], "usageMetadata": started} for word in words]
    last["candidates"] = [part("", finishReason="STOP")]
    if "alt=sse" not in call.path:
        return call.answer([*chunks, last])
    with call.events() as send:
        for chunk in [*chunks, last]:
            send(chunk)


ENDS = {
    "/chat/completions": openai_chat,
    "/responses": openai_responses,
    "/embeddings": openai_embeddings,
    "/messages": anthropic_messages,
    ":generateContent": gemini,
    ":streamGenerateContent": gemini,
}


class Events:
    """A stream of events, a chunk for each."""

    def __init__(self, call, named):
        self.call, self.named = call, named

    def __enter__(self):
        self.call.send_response(200)
        self.call.send_header("content-type", "text/event-stream")
        self.call.send_header("transfer-encoding", "chunked")
        self.call.end_headers()
        return self.send

    def send(self, data):
        text = data if isinstance(data, str) else json.dumps(data)
        name = f"event: {data['type']}\n" if self.named else ""
        event = f"{name}data: {text}\n\n".encode()
        self.call.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

    def __exit__(self, *_):
        self.call.wfile.write(b"0\r\n\r\n")


class Call(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked = json.loads(body)
        answer = next((ENDS[end] for end in ENDS if self.path.split("?")[0].endswith(end)), None)
        if answer is None:
            return self.answer({"error": "no such path"}, 404)
        config = self.asked.get("generationConfig") or {}
        limits = ("max_completion_tokens", "max_output_tokens", "max_tokens")
        most = [self.asked[name] for name in limits if self.asked.get(name)]
        most += [config["maxOutputTokens"]] if config.get("maxOutputTokens") else []
        answer(self, ["tide"] * min([OUTPUT, *most]))

    def answer(self, document, status=200):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def events(self, named=False):
        return Events(self, named)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    host, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9000").rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Call)
    print("listening %s:%d" % server.server_address, flush=True)
    server.serve_forever()
