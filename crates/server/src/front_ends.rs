//! The list of front ends: the name, the address and the server of each.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tidegate::rules::FrontEnd;
use tidegate_gateway::{self as gateway, Serving};
use tidegate_listen::{Drain, Exchanges, ListenSettings, Listener};
use tokio::net::TcpListener;

use crate::config::Config;
use crate::http::{Api, ServedCalls};
use crate::open::Service;
use crate::{debug, grpc, http, prometheus, resp};

/// A front end of the server.
#[derive(Debug)]
pub(crate) struct ServedFrontEnd {
    pub(crate) name: &'static str,
    /// The flag that sets its address.
    pub(crate) flag: &'static str,
    /// Its address, if it is on.
    pub(crate) address: fn(&Config) -> Option<SocketAddr>,
    /// Whether the server runs without it if its address cannot be bound.
    pub(crate) is_optional: bool,
    /// Serves connections until the drain begins and the open ones have ended.
    pub(crate) serve: for<'s> fn(&'s Service, TcpListener, Drain) -> BoxFuture<'s, ()>,
}

pub(crate) static FRONT_ENDS: [ServedFrontEnd; 7] = [
    ServedFrontEnd {
        name: "http",
        flag: "--http",
        address: |config| Some(config.http),
        is_optional: false,
        serve: |service, listener, drain| {
            let calls = service.calls_on_http;
            Box::pin(serve_http(service, listener, calls, drain))
        },
    },
    ServedFrontEnd {
        name: "admin",
        flag: "--admin",
        address: |config| config.admin,
        is_optional: false,
        serve: |service, listener, drain| {
            Box::pin(serve_http(service, listener, ServedCalls::All, drain))
        },
    },
    ServedFrontEnd {
        name: "grpc",
        flag: "--grpc",
        address: |config| config.grpc,
        is_optional: false,
        serve: |service, listener, drain| Box::pin(serve_grpc(service, listener, drain)),
    },
    ServedFrontEnd {
        name: "debug",
        flag: "--debug",
        address: |config| config.debug,
        is_optional: true,
        serve: |service, listener, drain| Box::pin(serve_debug(service, listener, drain)),
    },
    ServedFrontEnd {
        name: "prometheus",
        flag: "the setting `prometheus`",
        address: |config| Some(config.stats.prometheus.as_ref()?.address),
        is_optional: true,
        serve: |service, listener, drain| Box::pin(serve_prometheus(service, listener, drain)),
    },
    ServedFrontEnd {
        name: "resp",
        flag: "--resp",
        address: |config| config.resp,
        is_optional: false,
        serve: |service, listener, drain| Box::pin(serve_resp(service, listener, drain)),
    },
    ServedFrontEnd {
        name: "gateway",
        flag: "--gateway",
        address: |config| Some(config.gateway.as_ref()?.address),
        is_optional: false,
        serve: |service, listener, drain| Box::pin(serve_gateway(service, listener, drain)),
    },
];

async fn serve_http(service: &Service, listener: TcpListener, calls: ServedCalls, drain: Drain) {
    let exchanges = service.admin.sinks.exchanges(FrontEnd::Http);
    let settings = ListenSettings {
        tls: service.tls.http.clone(),
        ..listening(service, Some(exchanges))
    };
    let mut api = Api::new(Arc::clone(&service.admin), calls);
    api.needs_certificate = service.needs_certificate;
    http::serve(listener, api, settings, drain).await;
}

/// Serves gRPC, on its TCP address or on its Unix socket.
pub(crate) async fn serve_grpc(service: &Service, listener: impl Into<Listener>, drain: Drain) {
    let settings = ListenSettings {
        tls: service.tls.grpc.clone(),
        max_age: service.grpc_max_age,
        ..listening(service, service.admin.sinks.grpc_exchanges())
    };
    if let Some(threads) = &service.threads {
        let decider = Arc::clone(&service.admin.decider);
        grpc::serve(listener, decider, threads, settings, drain).await;
    }
}

async fn serve_debug(service: &Service, listener: TcpListener, drain: Drain) {
    let settings = ListenSettings {
        tls: None,
        ..listening(service, None)
    };
    debug::serve(listener, Arc::clone(&service.admin), settings, drain).await;
}

async fn serve_prometheus(service: &Service, listener: TcpListener, drain: Drain) {
    let settings = ListenSettings {
        tls: None,
        ..listening(service, None)
    };
    let (admin, path) = (Arc::clone(&service.admin), Arc::clone(&service.stats.path));
    prometheus::serve(listener, admin, path, settings, drain).await;
}

async fn serve_resp(service: &Service, listener: TcpListener, drain: Drain) {
    if let Some(threads) = &service.threads {
        let decider = Arc::clone(&service.admin.decider);
        resp::serve(listener, decider, threads, listening(service, None), drain).await;
    }
}

async fn serve_gateway(service: &Service, listener: TcpListener, drain: Drain) {
    let admin = &service.admin;
    if let (Some(gateway), Some(threads)) = (admin.gateway.clone(), &service.threads) {
        let shared = service.settings.clone();
        let settings = ListenSettings {
            tls: service.tls.gateway.clone(),
            budget: Some(service.descriptors.for_gateway()),
            exchanges: Some(admin.sinks.exchanges(FrontEnd::Gateway)),
            ..shared
        };
        let serving = Serving {
            layer: admin.decider.limits(),
            is_ready: admin.decider.ready_check(),
            threads,
            settings,
            drain,
        };
        gateway::serve(listener, gateway, serving).await;
    }
}

/// How the connections of a front end other than the gateway are served.
fn listening(service: &Service, exchanges: Option<Exchanges>) -> ListenSettings {
    ListenSettings {
        budget: Some(service.descriptors.for_front_end()),
        exchanges,
        ..service.settings.clone()
    }
}
