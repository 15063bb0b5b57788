"""Starts the server with the environment and the settings file of each rendered pod, on this machine: what the schema and the
templates let through, the server accepts. Files from Secrets are made here; Redis is never reached."""

import os
import pathlib
import re
import subprocess
import threading

def certificate(folder):
    """A certificate with its key, and itself as its authority."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    return {"key": (folder / "key").read_text(), "cert": (folder / "cert").read_text()}


def content(path, pair):
    """What a file that the chart does not make has, by its name."""
    if path.name.endswith(".key"):
        return pair["key"]
    if path.name.endswith(".crt"):
        return pair["cert"]
    if path.name == "rules.yaml":
        return "rules: [{id: all, per: [], limit: 100/minute}]\n"
    if path.name == "clients.yaml":
        return "clients: {}\n"
    return "0123456789abcdef0123456789abcdef"


def problem(objects, program, folder, pair):
    """Why the server of the objects does not start, or nothing."""
    workload = next(o for o in objects if o["kind"] in ("Deployment", "StatefulSet"))
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for mount in mounts.values():
        (folder / mount.lstrip("/")).mkdir(parents=True)

    def here(text):
        either = "|".join(map(re.escape, mounts.values()))
        return re.sub(rf"(?<!\S)({either})(?![\w-])", rf"{folder}\1", text)

    environment = {"PATH": os.environ["PATH"]}
    for variable in container["env"]:
        value = variable.get("value", "from-a-secret-0123456789")
        # Any free port of this machine.
        environment[variable["name"]] = re.sub(r"^(0\.0\.0\.0|\[::\]):\d+$", "127.0.0.1:0", here(value))
    maps = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
    for volume in pod.get("volumes") or []:
        for name, text in maps.get((volume.get("configMap") or {}).get("name"), {}).items():
            (pathlib.Path(here(mounts[volume["name"]])) / name).write_text(here(text))
    # Files that settings name, from Secrets and from ConfigMaps that are not the chart's.
    settings = "".join(maps.get(f"{workload['metadata']['name']}-config", {}).values())
    named = re.findall(r"_file: (\S+)", settings)
    for path in [*environment.values(), *map(here, named)]:
        file = pathlib.Path(path)
        if path.startswith(f"{folder}/etc") and not file.exists():
            file.write_text(content(file, pair))
    server = subprocess.Popen([program, *container["args"]], env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # A server that neither listens nor ends.
    timer = threading.Timer(30, server.kill)
    timer.start()
    is_listening = "listening http=" in server.stdout.readline()
    server.kill()
    timer.cancel()
    log = server.communicate()[1]
    return None if is_listening else log
