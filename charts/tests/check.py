"""Checks the chart as it is packaged: sets of values that render and are valid, sets that are refused with their reason, the
standard for pods, and that nothing has drifted from the project. Run by `scripts/chart`, which has the options."""

import argparse
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor

import kubernetes_validate
import yaml

import definitions
import pod_security
import running_pod
import started

ROOT = definitions.ROOT
CHART = ROOT / "charts/tidegate"
TESTS = ROOT / "charts/tests"
OLDEST = "1.30"
IMAGE = "image.repository=registry.example.com/tidegate"
# Objects that only an operator defines, and no schema of Kubernetes has.
CUSTOM = {"ServiceMonitor", "PrometheusRule"}

kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


class Checks:
    """Prints and keeps what failed."""

    def __init__(self):
        self.failures = []

    def that(self, condition, message):
        if not condition:
            self.failures.append(message)
            print(f"FAILED: {message}")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def has_image(file):
    return "repository" in ((yaml.safe_load(file.read_text()) or {}).get("image") or {})


def template(helm, chart, file, *arguments):
    own_image = [] if has_image(file) else ["--set", IMAGE]
    return run(helm, "template", "shop", str(chart), "--namespace", "limits", "--kube-version", OLDEST, "--values", str(file), *own_image, *arguments)


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def pods_of(document):
    if document["kind"] == "Pod":
        return [(document["metadata"], document["spec"])]
    pod = document.get("spec", {}).get("template")
    return [(pod["metadata"], pod["spec"])] if pod else []


def package(helm, folder):
    """The chart as it would be shipped, unpacked."""
    packed = run(helm, "package", str(CHART), "--destination", str(folder))
    if packed.returncode:
        sys.exit(packed.stderr)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / "tidegate"


def check_drift(checks, chart):
    workspace = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    described = yaml.safe_load((chart / "Chart.yaml").read_text())
    checks.that(described["version"] == described["appVersion"] == workspace, f"Chart.yaml: the version is not {workspace}, that of Cargo.toml")
    guide = (ROOT / "docs/guides/kubernetes.md").read_text()
    checks.that(f"/tidegate:{workspace}\n" in guide, f"docs/guides/kubernetes.md: the image has not the tag {workspace}, which the chart expects")
    for name, origin in {"alerts.yaml": "prometheus/alerts.yaml", "dashboard.json": "grafana/tidegate.json"}.items():
        packed, original = chart / "files" / name, ROOT / "packaging" / origin
        is_file = packed.is_file() and not packed.is_symlink()
        checks.that(is_file and packed.read_bytes() == original.read_bytes(), f"files/{name} of the package is not packaging/{origin}")
    for name in definitions.differences():
        checks.that(False, f"values.schema.json: `{name}` is not the project's schema: run scripts/chart --write")


def check_values(checks, chart):
    """Every value is in the schema and in the README, every object of the schema refuses what it does not know."""
    schema = json.loads((chart / "values.schema.json").read_text())
    readme = (CHART / "README.md").read_text()

    def walk_values(values, part, path):
        for key, value in values.items():
            name = f"{path}{key}"
            known = part.get("properties", {}).get(key)
            checks.that(known is not None or isinstance(part.get("additionalProperties"), dict), f"values.schema.json does not have {name}")
            if isinstance(value, dict) and known and "properties" in known:
                walk_values(value, known, f"{name}.")
            elif known:
                checks.that(f"`{name}`" in readme, f"the README of the chart does not have `{name}`")

    def walk_schema(part, path):
        if isinstance(part, list):
            for item in part:
                walk_schema(item, path)
        if not isinstance(part, dict):
            return
        from_kubernetes = "as in Kubernetes" in part.get("description", "") or path in ("/global", "/extraVolumes/items")
        if part.get("type") == "object" and not from_kubernetes:
            checks.that("additionalProperties" in part, f"values.schema.json: {path} accepts any key")
        for key, value in part.items():
            if key != "definitions":
                walk_schema(value, path if key == "properties" else f"{path}/{key}")

    walk_values(yaml.safe_load((chart / "values.yaml").read_text()), schema, "")
    walk_schema(schema, "")


def has_nothing(value):
    """Whether a part of an object is null, as after a heading of a template that has nothing below it."""
    if isinstance(value, (dict, list)):
        return any(map(has_nothing, value.values() if isinstance(value, dict) else value))
    return value is None


def check_objects(checks, name, objects, versions):
    """Valid for Kubernetes, and consistent with each other."""
    names = set()
    workloads = [o for o in objects if o["kind"] in ("Deployment", "StatefulSet")]
    checks.that(len(workloads) == 1, f"{name}: {len(workloads)} workloads")
    server = workloads[0]["spec"]["template"]
    labels = server["metadata"]["labels"].items()
    ports = {port["name"] for port in server["spec"]["containers"][0]["ports"]}
    for document in objects:
        label = f"{name}: {document['kind']} {document['metadata']['name']}"
        checks.that((document["kind"], document["metadata"]["name"]) not in names, f"{label} is there twice")
        names.add((document["kind"], document["metadata"]["name"]))
        checks.that(not has_nothing(document), f"{label} has a key without a value")
        if document["kind"] not in CUSTOM:
            for version in versions:
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    checks.that(False, f"{label}: {error.json_path} is not valid for Kubernetes {version}: {error.message[:200]}")
        for metadata, pod in pods_of(document):
            for problem in pod_security.problems(pod):
                checks.that(False, f"{label}: {problem}")
            volumes = {volume["name"] for volume in pod.get("volumes") or []}
            volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates") or []}
            mounts = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts") or []}
            checks.that(mounts == volumes, f"{label}: volumes {sorted(volumes)}, mounted {sorted(mounts)}")
            checks.that(pod is server["spec"] or not labels <= metadata["labels"].items(), f"{label}: a Service would send it requests")
            variables = [variable["name"] for container in pod["containers"] for variable in container.get("env") or []]
            checks.that(len(variables) == len(set(variables)), f"{label}: a variable is there twice")
        if document["kind"] == "Service":
            checks.that(document["spec"]["selector"].items() <= labels, f"{label} selects other pods")
            targets = {port["targetPort"] for port in document["spec"]["ports"]}
            checks.that(targets <= ports, f"{label}: no container has the ports {targets - ports}")
            is_public = document["spec"]["type"] != "ClusterIP"
            checks.that(not is_public or "admin" not in targets, f"{label} shows the admin API outside of the cluster")
    return server


def check_monitoring(checks, name, objects, promtool):
    for document in objects:
        if document["kind"] == "ServiceMonitor":
            selected = [
                o for o in objects
                if o["kind"] == "Service" and document["spec"]["selector"]["matchLabels"].items() <= o["metadata"]["labels"].items()
            ]
            wanted = document["spec"]["endpoints"][0]["port"]
            there = [port["name"] for service in selected for port in service["spec"]["ports"] if port["name"] == wanted]
            checks.that(len(there) == 1, f"{name}: the ServiceMonitor selects {len(there)} ports, not one")
        if document["kind"] == "PrometheusRule":
            job = document["metadata"]["labels"]["app.kubernetes.io/name"]
            values = yaml.safe_load((TESTS / "good" / f"{name}.yaml").read_text())
            base = values["prometheusRule"].get("runbookBase") or "docs/guides/alerts.md"
            for group in document["spec"]["groups"]:
                for alert in group["rules"]:
                    expected = f"{base}#{alert['alert'].lower()}"
                    checks.that(alert["annotations"]["runbook_url"] == expected, f"{name}: {alert['alert']} does not link to {expected}")
                    jobs = set(re.findall(r'job="([^"]*)"', alert["expr"]))
                    checks.that(jobs <= {job}, f"{name}: {alert['alert']} is about the job {jobs}, not {job}")
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                yaml.safe_dump(document["spec"], file)
                file.flush()
                checked = run(promtool, "check", "rules", file.name)
                checks.that(checked.returncode == 0, f"{name}: promtool: {checked.stdout}{checked.stderr}")


def validated(objects, program):
    """What the hook that validates rules answers, run here; nothing if there is no hook for rules of the values."""
    jobs = [o for o in objects if o["kind"] == "Job"]
    maps = [o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"].endswith("-validate-rules")]
    if not jobs or not maps:
        return None
    arguments = jobs[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    mount = "/etc/tidegate/rules/rules.yaml"
    assert mount in arguments, arguments
    return run(program, *("-" if argument == mount else argument for argument in arguments), input=maps[0]["data"]["rules.yaml"])


def check_hook(checks, helm, chart, program):
    """The hook finds what the schema cannot."""
    objects = documents(template(helm, chart, TESTS / "hook.yaml").stdout)
    result = validated(objects, program)
    checks.that(result.returncode == 1, f"the hook accepts two rules of one id: {result.stdout}{result.stderr}")


def expected_reason(file):
    first = file.read_text().splitlines()[0]
    return first.removeprefix("# refused: ")


def check_refused(checks, helm, chart, folder):
    files = sorted((TESTS / "bad").glob("*.yaml"))
    large = folder / "rules-above-1-mib.yaml"
    rule = "- {id: rule-%d, match: {path: /%s}, per: [user_id], limit: 100/minute}\n"
    large.write_text("# refused: a ConfigMap holds at most 1 MiB (1048576 bytes)\nreplicaCount: 1\nrules:\n" + "".join(rule % (n, "x" * 900) for n in range(1100)))
    files.append(large)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda file: template(helm, chart, file), files))
    for file, result in zip(files, results):
        reason = expected_reason(file)
        checks.that(result.returncode != 0, f"{file.stem} is not refused")
        checks.that(reason in result.stderr, f"{file.stem} is refused with another reason than `{reason}`:\n{result.stderr}")
        checks.that("hunter2" not in result.stderr, f"{file.stem}: the message shows the password")
    return len(files)


def check_changes(checks, helm, chart):
    """Rules change without a restart, settings with one."""
    file = TESTS / "good/01-redis.yaml"

    def server(*changes):
        objects = documents(template(helm, chart, file, *changes).stdout)
        return next(o for o in objects if o["kind"] == "Deployment")

    checks.that(server() == server("--set", "rules[0].limit=7/minute"), "a change of rules changes the Deployment")
    checks.that(server("--set", "config.max_keys=1000") != server("--set", "config.max_keys=2000"), "a change of settings does not")


def notes(helm, chart, file):
    """What NOTES.txt says. Helm renders it only for a cluster, so a copy of the chart has it as an object."""
    text = (chart / "templates/NOTES.txt").read_text()
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(chart, f"{folder}/tidegate")
        pathlib.Path(copy, "templates/_notes.tpl").write_text('{{- define "notes" -}}' + text + "{{- end -}}")
        pathlib.Path(copy, "templates/notes.yaml").write_text('kind: Notes\ntext: {{ include "notes" . | toJson }}\n')
        objects = documents(template(helm, copy, file).stdout)
    return next(o["text"] for o in objects if o["kind"] == "Notes")


def check_notes(checks, helm, chart):
    for name, expected in {
        "01-redis": ["No tokens are configured", "Connections are not encrypted", "Every pod of the cluster", "hashed in Redis with a constant"],
        "03-unshared": ["each of up to 3 replicas grants every limit in full"],
        "05-one-replica-without-rules": ["everything is allowed until rules are applied", "They are lost with the pod"],
        "19-token-from-extra-env": ["It has no token, and is refused"],
        "42-client-certificates-without-a-test": ["It has no client certificate, and is refused"],
        "27-load-balancer": ["reached from outside of the cluster"],
        "28-node-port-without-grpc-and-admin": ["/metrics on port 8080"],
    }.items():
        text = notes(helm, chart, TESTS / "good" / f"{name}.yaml")
        for words in expected:
            checks.that(words in text, f"{name}: NOTES.txt does not say `{words}`:\n{text}")
    closed = notes(helm, chart, TESTS / "good/40-everything.yaml")
    for words in ["No tokens", "not encrypted", "Every pod", "a constant", "everything is allowed", "is refused"]:
        checks.that(words not in closed, f"40-everything: NOTES.txt says `{words}`")


def check_starts(checks, servers, program, folder):
    pems = started.certificates(folder)
    with ThreadPoolExecutor(4) as pool:
        problems = pool.map(lambda item: started.problem(item[1], program, folder / "started" / item[0], pems), servers.items())
        for name, problem in zip(servers, problems):
            checks.that(problem is None, f"{name}: {problem}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--helm", required=True)
    parser.add_argument("--promtool", required=True)
    parser.add_argument("--program", type=os.path.abspath, help="the program tidegate")
    parser.add_argument("--pod", action="store_true", help="start the rendered servers, and run a pod")
    options = parser.parse_args()
    checks = Checks()
    versions = [OLDEST, kubernetes_validate.latest_version()]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # Helm keeps nothing of its own in the home directory, and finds no cluster.
        os.environ |= {"HELM_CACHE_HOME": name, "HELM_CONFIG_HOME": name, "HELM_DATA_HOME": name, "KUBECONFIG": f"{name}/none"}
        chart = package(options.helm, folder)
        check_drift(checks, chart)
        check_values(checks, chart)
        files = sorted((TESTS / "good").glob("*.yaml"))
        checks.that(len(files) >= 40, f"only {len(files)} sets of values")
        with ThreadPoolExecutor(4) as pool:
            rendered = list(pool.map(lambda file: template(options.helm, chart, file), files))
            linted = list(pool.map(lambda file: run(options.helm, "lint", "--strict", "--quiet", str(chart), "--values", str(file), "--set", IMAGE), files))
        servers = {}
        for file, result, lint in zip(files, rendered, linted):
            checks.that(lint.returncode == 0, f"{file.stem}: helm lint: {lint.stdout}{lint.stderr}")
            checks.that(result.returncode == 0, f"{file.stem} does not render: {result.stderr}")
            if result.returncode == 0:
                objects = documents(result.stdout)
                servers[file.stem] = objects
                server = check_objects(checks, file.stem, objects, versions)
                check_monitoring(checks, file.stem, objects, options.promtool)
                rules = validated(objects, options.program) if options.program else None
                checks.that(not rules or rules.returncode == 0, f"{file.stem}: the hook refuses the rules: {rules and rules.stderr}")
        for pod in pod_security.planted(server["spec"]):
            checks.that(pod_security.problems(pod), f"a violation of the standard is not found: {json.dumps(pod)}")
        refused = check_refused(checks, options.helm, chart, folder)
        checks.that(refused >= 20, f"only {refused} sets are refused")
        check_changes(checks, options.helm, chart)
        if options.program:
            check_hook(checks, options.helm, chart, options.program)
        check_notes(checks, options.helm, chart)
        if not checks.failures:
            print(f"chart: {len(files)} sets of values are valid for Kubernetes {' and '.join(versions)}, {refused} are refused")
        if not options.program:
            print("skipped: rendered rules are not validated, because there is no program; build tidegate, or set TIDEGATE_PROGRAM")
        if options.pod and options.program:
            check_starts(checks, servers, options.program, folder)
            print(f"the servers of {len(servers)} sets were started with their rendered settings, and asked as `helm test` does")
        if options.pod:
            objects = documents(template(options.helm, chart, TESTS / "pod.yaml").stdout)
            problem = running_pod.try_pod(objects, options.program, folder)
            checks.that(problem is None, f"the rendered pod: {problem}")
    if checks.failures:
        sys.exit(f"{len(checks.failures)} checks of the chart failed")


main()
