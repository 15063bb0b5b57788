//! The contract of a store, on real servers of every topology.

use tidegate_testkit::conformance;
use tidegate_testkit::redis::{Cluster, Program, RedisServer, Sentinel};

use crate::store;

#[tokio::test(flavor = "multi_thread")]
async fn standalone() {
    let server = RedisServer::start();
    conformance::run_all(store(&server.url()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey() {
    let server = RedisServer::options().program(Program::Valkey).start();
    conformance::run_all(store(&server.url()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket() {
    let server = RedisServer::options().unix_only().start();
    conformance::run_all(store(&server.url()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel() {
    let sentinel = Sentinel::start();
    conformance::run_all(store(&sentinel.url()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster() {
    let cluster = Cluster::start();
    conformance::run_all(store(&cluster.url()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_of_valkey() {
    let cluster = Cluster::start_with(0, &RedisServer::options().program(Program::Valkey));
    conformance::run_all(store(&cluster.url()).await).await;
}
