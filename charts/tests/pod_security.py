"""The restricted Pod Security Standard of Kubernetes, and what the chart promises beyond it. `problems` lists what a pod violates."""

import copy

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
USER = 10001


def containers(pod):
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(kind) or []


def problems(pod):
    found = []
    whole = pod.get("securityContext") or {}
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            found.append(f"{key} is set")
    if pod.get("automountServiceAccountToken") is not False:
        found.append("the token of the service account is mounted")
    for volume in pod.get("volumes") or []:
        for kind in volume.keys() - {"name"} - VOLUMES:
            found.append(f"volume {volume['name']} is a {kind}")
    if whole.get("sysctls"):
        found.append("sysctls are set")
    for container in containers(pod):
        name, own = container["name"], container.get("securityContext") or {}

        def setting(key):
            return own[key] if key in own else whole.get(key)

        capabilities = own.get("capabilities") or {}
        seccomp = (setting("seccompProfile") or {}).get("type")
        checks = {
            "is privileged": own.get("privileged"),
            "may escalate privileges": own.get("allowPrivilegeEscalation") is not False,
            "may run as root": setting("runAsNonRoot") is not True,
            f"does not run as user {USER}": setting("runAsUser") != USER,
            f"does not run as group {USER}": setting("runAsGroup") != USER,
            f"has the seccomp profile {seccomp}": seccomp not in ("RuntimeDefault", "Localhost"),
            "keeps capabilities": "ALL" not in (capabilities.get("drop") or []),
            "adds capabilities": bool(capabilities.get("add")),
            "can write to its root": own.get("readOnlyRootFilesystem") is not True,
            "has a procMount": own.get("procMount", "Default") != "Default",
            "has SELinux options": bool(setting("seLinuxOptions")),
            "is a Windows host process": bool((setting("windowsOptions") or {}).get("hostProcess")),
            "has an unconfined AppArmor profile": (setting("appArmorProfile") or {}).get("type") == "Unconfined",
            "has a port of the host": any(port.get("hostPort") for port in container.get("ports") or []),
            "probes another host": any(
                (container.get(probe) or {}).get("httpGet", {}).get("host")
                for probe in ("livenessProbe", "readinessProbe", "startupProbe")
            ),
        }
        found += [f"container {name} {problem}" for problem, is_there in checks.items() if is_there]
    return found


def planted(pod):
    """Pods that each violate the standard in one way, to see that `problems` finds it."""

    def with_change(change):
        other = copy.deepcopy(pod)
        change(other)
        return other

    first = lambda pod: pod["containers"][0]
    own = lambda pod: first(pod)["securityContext"]
    yield with_change(lambda pod: pod.update(hostNetwork=True))
    yield with_change(lambda pod: pod.pop("automountServiceAccountToken", None))
    yield with_change(lambda pod: pod.setdefault("volumes", []).append({"name": "x", "hostPath": {"path": "/"}}))
    yield with_change(lambda pod: pod["securityContext"].pop("runAsNonRoot", None))
    yield with_change(lambda pod: pod["securityContext"].update(runAsUser=0))
    yield with_change(lambda pod: pod["securityContext"].pop("seccompProfile", None))
    yield with_change(lambda pod: own(pod).update(privileged=True))
    yield with_change(lambda pod: own(pod).pop("allowPrivilegeEscalation", None))
    yield with_change(lambda pod: own(pod)["capabilities"].update(drop=["NET_RAW"]))
    yield with_change(lambda pod: own(pod)["capabilities"].update(add=["NET_ADMIN"]))
    yield with_change(lambda pod: own(pod).pop("readOnlyRootFilesystem", None))
    yield with_change(lambda pod: own(pod).update(runAsNonRoot=False))
    yield with_change(lambda pod: first(pod).update(ports=[{"containerPort": 80, "hostPort": 80}]))
    yield with_change(lambda pod: pod.update(initContainers=[{"name": "init"}]))
