//! TLS, client certificates, passwords and users.

use std::time::{Duration, Instant};

use tidegate_core::{Limit, Scope};
use tidegate_redis::{RedisSettings, RedisStore, RedisTls};
use tidegate_testkit::conformance;
use tidegate_testkit::redis::{Certificates, ClientCertificates, Cluster, Program, RedisServer};

use crate::Asked;

const PATIENCE: Duration = Duration::from_secs(20);

fn asked() -> Asked {
    let limit: Limit = "5/hour".parse().unwrap();
    Asked::new(Scope::new("login"), &limit, "key")
}

fn tls(certificates: &Certificates, with_client: bool) -> RedisTls {
    let read = |path| Some(std::fs::read(path).unwrap());
    RedisTls {
        ca: read(&certificates.authority),
        cert: with_client.then(|| std::fs::read(&certificates.client).unwrap()),
        key: with_client.then(|| std::fs::read(&certificates.client_key).unwrap()),
    }
}

fn settings(server: &RedisServer) -> RedisSettings {
    settings_of(&server.url())
}

fn settings_of(url: &str) -> RedisSettings {
    let mut settings = RedisSettings::new(url.parse().unwrap());
    settings.deadline = Duration::from_secs(2);
    settings
}

/// The problem of a store that cannot connect, when it contains this text.
async fn problem_with(store: &RedisStore, text: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let problem = store.problem().unwrap();
        if problem.to_lowercase().contains(text) {
            return problem;
        }
        assert!(Instant::now() < end, "{problem}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_a_client_certificate_and_a_user() {
    let server = RedisServer::options()
        .tls(ClientCertificates::Required)
        .user("limiter", "s3cret")
        .start();
    let mut settings = settings(&server);
    settings.tls = tls(server.certificates().unwrap(), true);
    let store = RedisStore::open(settings);
    store.connected(PATIENCE).await.unwrap();
    assert_eq!(asked().ask(&store, 1).await.unwrap().remaining, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_an_untrusted_certificate_is_not_used() {
    let server = RedisServer::options()
        .tls(ClientCertificates::Optional)
        .start();
    let store = RedisStore::open(settings(&server));
    problem_with(&store, "certificate").await;

    let mut trusting = settings(&server);
    trusting.tls = tls(server.certificates().unwrap(), false);
    let store = RedisStore::open(trusting);
    store.connected(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_reported_and_not_repeated() {
    let server = RedisServer::options().password("right").start();
    let mut wrong = settings(&server);
    wrong.password = Some("s3cret-but-wrong".to_owned());
    assert!(!format!("{wrong:?}").contains("s3cret"));
    let store = RedisStore::open(wrong);
    let problem = problem_with(&store, "password").await;
    assert!(!problem.contains("s3cret"), "{problem}");
    let error = asked().ask(&store, 1).await.unwrap_err();
    assert!(!format!("{error:?}").contains("s3cret"));

    let store = RedisStore::open(settings(&server));
    store.connected(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_wants_a_password_is_reported_with_the_setting_that_gives_it() {
    let options = RedisServer::options().password("right");
    let (server, cluster) = (options.start(), Cluster::start_with(0, &options));
    let addresses = [
        format!("redis://{}", server.address()),
        format!("redis+cluster://{}", cluster.nodes()[0].address()),
    ];
    for url in addresses {
        let store = RedisStore::open(settings_of(&url));
        let problem = problem_with(&store, "it requires a password, and none is configured").await;
        assert!(problem.contains("`redis_password_file`"), "{problem}");
        assert!(!problem.contains("bulk length"), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_that_the_guide_makes_may_do_all_that_is_needed_and_no_more() {
    let guide = include_str!("../../../../docs/guides/redis.md");
    let mut lines = guide.lines();
    let command = lines.find(|line| line.starts_with("ACL SETUSER tidegate"));
    let command: Vec<&str> = command.unwrap().split(' ').collect();
    let every = Program::ALL.into_iter().map(|program| (program, None));
    for (program, namespace) in every.chain([(Program::ALL[0], Some("staging"))]) {
        let server = RedisServer::options().program(program).start();
        let _: String = server.query(&command);
        let mut settings = settings(&server);
        settings.namespace = namespace.map(|name: &str| name.parse().unwrap());
        (settings.user, settings.password) = (Some("tidegate".into()), Some("password".into()));
        let store = RedisStore::open(settings);
        store.connected(PATIENCE).await.unwrap();
        conformance::run_all(store.clone()).await;
        store.shared_rules(1).write(0, "[]", "{}").await.unwrap();
        let listening = tokio::time::timeout(Duration::from_millis(300), store.follow_rules(|| {}));
        assert!(listening.await.is_err(), "it listens for ever");
        store.publish_activity("0123abcd", b"x", 7).await.unwrap();
        let echo = async |question: Vec<u8>| question;
        tokio::select! {
            () = store.answer_questions("0123abcd", echo) => panic!("it ends never"),
            answer = store.ask_instance("0123abcd", b"a question") => {
                assert_eq!(answer.unwrap().as_deref(), Some(&b"a question"[..]));
            }
        }
        let log: Vec<redis::Value> = server.query(&["ACL", "LOG"]);
        assert!(log.is_empty(), "{log:?}");
    }
}
