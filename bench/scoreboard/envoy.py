"""Envoy with one worker: alone, with its local rate limit, or with a service that it calls over gRPC."""

import json

from . import peers
from .gateways import EVERYTHING
from .process import free_port
from .servers import folder, on_port

DOMAIN = "bench"
_FILTERS = "type.googleapis.com/envoy.extensions.filters"
_HTTP2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
# A descriptor for each address of a client.
_PER_ADDRESS = [{"actions": [{"remote_address": {}}]}]


def http_filter(name, message, **config):
    return {"name": f"envoy.filters.http.{name}", "typed_config": {"@type": f"{_FILTERS}.http.{message}", **config}}


def local_limit(limit):
    """A bucket for each address, as the other proxies have."""
    bucket = {"max_tokens": limit, "tokens_per_fill": limit, "fill_interval": "1s"}
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    return http_filter(
        "local_ratelimit", "local_ratelimit.v3.LocalRateLimit", stat_prefix="limit", token_bucket=bucket,
        filter_enabled=always, filter_enforced=always, always_consume_default_token_bucket=False, max_dynamic_descriptors=100_000,
        rate_limits=_PER_ADDRESS, descriptors=[{"entries": [{"key": "remote_address"}], "token_bucket": bucket}],
    )


def called_service():
    """A call for each request. One that is not answered fails the request, so that none is admitted without a decision."""
    service = {"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "service"}}}
    return http_filter(
        "ratelimit", "ratelimit.v3.RateLimit", domain=DOMAIN, timeout="5s", failure_mode_deny=True,
        rate_limit_service=service,
    )


def endpoint(address, **more):
    host, port = address.rsplit(":", 1)
    return {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}, **more}}


def cluster(name, endpoints, **more):
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}
    return {"name": name, "type": "STATIC", "connect_timeout": "5s", "load_assignment": assignment, **more}


def service_cluster(endpoints, **more):
    """The servers that the filter calls, over HTTP/2."""
    options = {"@type": f"type.googleapis.com/{_HTTP2}", "explicit_http_config": {"http2_protocol_options": {}}}
    return cluster("service", endpoints, typed_extension_protocol_options={_HTTP2: options}, **more)


def start(behind, filters, *services):
    """Envoy with these filters before the router, and the clusters of services that they call."""
    here, port = folder(), free_port()
    clusters = [cluster("behind", [endpoint(behind)]), *services]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "behind", "rate_limits": _PER_ADDRESS}}
    manager = {
        "@type": f"{_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web", "use_remote_address": True, "generate_request_id": False, "stream_idle_timeout": "600s",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [*filters, http_filter("router", "router.v3.Router")],
    }
    listener = {
        "name": "web", "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
    }
    (here / "envoy.json").write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}}))
    program = peers.installed("envoy", "envoy/envoy")
    command = [program, "--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", here / "envoy.json"]
    return on_port(command, port, "gateway", here)


def limited(behind, limit=EVERYTHING):
    return start(behind, [local_limit(limit)])
