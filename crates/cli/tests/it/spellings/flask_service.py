# A service of Flask that says whom it takes the sender of a request for. Prints its port.
import json

from flask import Flask, request
from werkzeug.serving import WSGIRequestHandler, make_server

app = Flask(__name__)


@app.route("/", defaults={"path": ""}, methods=["GET"])
@app.route("/<path:path>", methods=["GET"])
def who(path):
    basic = request.authorization
    name = f"{basic.username}:{basic.password}" if basic and basic.type == "basic" else None
    token = basic.token if basic and basic.type == "bearer" else None
    return {
        "key": [request.headers.get("X-Api-Key"), *request.args.getlist("api_key")],
        "session": [request.cookies.get("session")],
        "auth": [name, token],
        "user": [],
        "path": [request.path],
    }


WSGIRequestHandler.protocol_version = "HTTP/1.1"
WSGIRequestHandler.log_request = lambda *_: None
app.url_map.merge_slashes = False
server = make_server("127.0.0.1", 0, app, threaded=True)
print(json.dumps({"port": server.server_port}), flush=True)
server.serve_forever()
