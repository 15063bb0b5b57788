//! Keys that are fetched from a real server, over HTTP and TLS. Only the waiting is not real.

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};
use tidegate::Attributes;
use tidegate_testkit::redis::Certificates;
use tidegate_testkit::{HttpAnswer, HttpServer};

use tidegate_identity::{Identity, KeptFiles};
use tidegate_server::data_dir::LockedDir;

use crate::{Place, alice, bearer, refused};

const PATH: &str = "/jwks.json";

/// Signs tokens, and says by which key.
struct Signer {
    kid: &'static str,
    key: EncodingKey,
}

impl Signer {
    fn new(kid: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
        Self { kid, key }
    }

    fn token(&self) -> String {
        let header = Header {
            kid: Some(self.kid.to_owned()),
            ..Header::new(Algorithm::ES256)
        };
        encode(&header, &alice(), &self.key).unwrap()
    }

    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(self.kid.to_owned());
        serde_json::to_value(&jwk).unwrap()
    }
}

fn set(signers: &[&Signer]) -> String {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

fn open(url: &str, more: &str) -> Identity {
    let yaml = format!("identify: {{user_id: {{jwt: sub}}}}\njwt: {{jwks_url: \"{url}\"{more}}}");
    Place::new().open(&yaml).unwrap()
}

fn at(issuer: &HttpServer) -> Identity {
    open(&format!("http://{}{PATH}", issuer.address()), "")
}

fn is_believed(identity: &Identity, signer: &Signer) -> bool {
    bearer(identity, &signer.token()) == "user_id=alice"
}

/// Lets the others run until it is so, in real time.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come to it that {what}");
}

/// Lets time pass for those who wait for it.
async fn pass(time: Duration) {
    // Those who were just woken begin to wait first.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_set_is_fetched_at_the_start_and_its_tokens_are_believed() {
    let (issuer, signer) = (HttpServer::start(), Signer::new("a"));
    issuer.answer(PATH, HttpAnswer::body(set(&[&signer])));
    let identity = at(&issuer);
    assert!(!is_believed(&identity, &signer));
    let next = identity.first_fetch(None).await;
    assert_eq!(next, Duration::from_mins(10));
    assert!(is_believed(&identity, &signer));
    assert!(!is_believed(&identity, &Signer::new("a")));
    assert_eq!(identity.fetches(), Some((1, 0)));
    assert_eq!(identity.warnings(), None);
}

#[tokio::test]
async fn a_set_is_used_for_as_long_as_max_age_says_from_a_minute_to_a_day() {
    let (issuer, signer) = (HttpServer::start(), Signer::new("a"));
    for (max_age, seconds) in [
        ("max-age=300", 300),
        ("public, max-age=1", 60),
        ("max-age=9999999", 86_400),
    ] {
        let answer = HttpAnswer::body(set(&[&signer])).header("cache-control", max_age);
        issuer.answer(PATH, answer);
        let next = at(&issuer).first_fetch(None).await;
        assert_eq!(next, Duration::from_secs(seconds), "{max_age}");
    }
}

#[tokio::test]
async fn sets_are_fetched_every_10_minutes_and_the_last_good_one_stays() {
    let (issuer, first, second) = (HttpServer::start(), Signer::new("a"), Signer::new("b"));
    issuer.answer(PATH, HttpAnswer::body(set(&[&first])));
    let identity = Arc::new(at(&issuer));
    let next = identity.first_fetch(None).await;
    let following = tokio::spawn({
        let identity = Arc::clone(&identity);
        async move { identity.keep_fetching(next, None).await }
    });
    // What is not a set, has no key that can be used, or is not there, changes nothing.
    let bad = [
        HttpAnswer::status(500),
        HttpAnswer::body("{"),
        HttpAnswer::body("[]"),
        HttpAnswer::body(r#"{"keys": []}"#),
        HttpAnswer::body(
            json!({"keys": [{"kty": "oct", "kid": "s", "k": "c2VjcmV0"}]}).to_string(),
        ),
        HttpAnswer::body(vec![b' '; (1 << 20) + 1]),
    ];
    let waits = [10, 1, 1, 1, 1, 1].into_iter().zip(1_u64..);
    for (answer, (wait, failed)) in bad.into_iter().zip(waits) {
        issuer.answer(PATH, answer);
        pass(Duration::from_mins(wait)).await;
        until("it has failed", || identity.fetches() == Some((1, failed))).await;
        assert!(is_believed(&identity, &first));
        let warning = identity.warnings().unwrap();
        assert!(warning.contains("the last ones stay in use"), "{warning}");
    }
    issuer.answer(PATH, HttpAnswer::body(set(&[&second])));
    pass(Duration::from_mins(1)).await;
    until("the second is believed", || is_believed(&identity, &second)).await;
    assert!(!is_believed(&identity, &first));
    assert_eq!(identity.warnings(), None);
    following.abort();
}

#[tokio::test]
async fn an_unknown_kid_fetches_at_most_once_in_30_seconds() {
    let (issuer, first) = (HttpServer::start(), Signer::new("a"));
    issuer.answer(PATH, HttpAnswer::body(set(&[&first])));
    let identity = Arc::new(at(&issuer));
    let next = identity.first_fetch(None).await;
    let following = tokio::spawn({
        let identity = Arc::clone(&identity);
        async move { identity.keep_fetching(next, None).await }
    });
    // A key that the issuer has since begun to use.
    let second = Signer::new("b");
    issuer.answer(PATH, HttpAnswer::body(set(&[&first, &second])));
    assert!(
        !is_believed(&identity, &second),
        "this token is the one that causes the fetch"
    );
    until("it is fetched", || is_believed(&identity, &second)).await;
    assert_eq!(issuer.asked().len(), 2);

    // As many as a client likes to make up.
    let made_up = Signer::new("made-up");
    for _ in 0..50 {
        assert!(!is_believed(&identity, &made_up));
        tokio::task::yield_now().await;
    }
    pass(Duration::from_secs(15)).await;
    // Nothing can be awaited: it is not fetched.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(issuer.asked().len(), 2);
    pass(Duration::from_secs(16)).await;
    until("it is fetched for them", || issuer.asked().len() == 3).await;
    // A known key that did not sign a token is no unknown one.
    pass(Duration::from_secs(31)).await;
    assert!(!is_believed(&identity, &Signer::new("a")));
    // Nothing can be awaited: it is not fetched.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(issuer.asked().len(), 3);
    following.abort();
}

/// The attributes of a client with this token.
fn attributes(identity: &Identity, token: &str) -> Attributes<'static> {
    let mut headers = http::HeaderMap::new();
    let value = format!("Bearer {token}").try_into().unwrap();
    headers.insert(http::header::AUTHORIZATION, value);
    let mut attributes = Attributes::new();
    identity.describe(&headers, None, &mut attributes).unwrap();
    // Nothing of the headers is kept.
    let mut owned = Attributes::new();
    for (name, value) in attributes.iter() {
        owned.insert(name.to_owned(), value.to_owned()).unwrap();
    }
    if attributes.awaits_key() {
        owned.await_key();
    }
    owned
}

#[tokio::test]
async fn an_unknown_kid_waits_for_one_fetch_and_no_longer_than_a_second() {
    let (issuer, first) = (HttpServer::start(), Signer::new("a"));
    issuer.answer(PATH, HttpAnswer::body(set(&[&first])));
    let identity = Arc::new(at(&issuer));
    let next = identity.first_fetch(None).await;
    let following = tokio::spawn({
        let identity = Arc::clone(&identity);
        async move { identity.keep_fetching(next, None).await }
    });
    assert!(!attributes(&identity, &first.token()).awaits_key());
    let second = Signer::new("b");
    issuer.answer(PATH, HttpAnswer::body(set(&[&first, &second])));
    assert!(attributes(&identity, &second.token()).awaits_key());
    // Many requests may wait for the same fetch.
    tokio::join!(identity.next_keys(), identity.next_keys());
    // A busy machine may take longer than they wait.
    until("it is fetched", || identity.fetches() == Some((2, 0))).await;
    let known = attributes(&identity, &second.token());
    assert_eq!(known.get("user_id"), Some("alice"));
    assert_eq!(issuer.asked().len(), 2);
    // An invented one after it does not wait, and is counted.
    let invented = Signer::new("made-up").token();
    assert!(!attributes(&identity, &invented).awaits_key());
    assert_eq!(refused(&identity), [("unknown_key", 1)]);
    identity.next_keys().await;
    assert_eq!(issuer.asked().len(), 2);
    following.abort();

    // No fetch ends.
    let identity = at(&issuer);
    identity.first_fetch(None).await;
    tokio::time::pause();
    for (millis, is_enough) in [(999, false), (1_001, true)] {
        let patience = Duration::from_millis(millis);
        let waited = tokio::time::timeout(patience, identity.next_keys()).await;
        assert_eq!(waited.is_ok(), is_enough, "{millis} ms");
    }
}

#[tokio::test]
async fn a_reload_fetches_immediately() {
    let (issuer, signer) = (HttpServer::start(), Signer::new("a"));
    let identity = Arc::new(at(&issuer));
    let next = identity.first_fetch(None).await;
    let following = tokio::spawn({
        let identity = Arc::clone(&identity);
        async move { identity.keep_fetching(next, None).await }
    });
    issuer.answer(PATH, HttpAnswer::body(set(&[&signer])));
    identity.reload();
    until("it is fetched", || identity.fetches() == Some((1, 1))).await;
    assert!(is_believed(&identity, &signer));
    following.abort();
}

#[tokio::test]
async fn without_any_set_tokens_are_refused_and_that_is_said() {
    let issuer = HttpServer::start();
    issuer.answer(PATH, HttpAnswer::status(503));
    let identity = open(&format!("http://{}{PATH}?key=s3cret", issuer.address()), "");
    identity.first_fetch(None).await;
    assert!(identity.lacks_keys());
    assert_eq!(bearer(&identity, &Signer::new("a").token()), "user_id?");
    assert_eq!(bearer(&identity, "nonsense"), "user_id!");
    let warning = identity.warnings().unwrap();
    assert!(
        warning.contains("requests with a token get 503"),
        "{warning}"
    );
    assert!(warning.contains("status 404"), "{warning}");
    assert!(!warning.contains("s3cret"), "{warning}");
}

#[tokio::test]
async fn the_last_good_set_is_kept_for_a_start_without_its_issuer() {
    let (issuer, signer) = (HttpServer::start(), Signer::new("a"));
    let folder = tempfile::tempdir().unwrap();
    let data: Arc<dyn KeptFiles> = Arc::new(LockedDir::open(folder.path()).unwrap());
    issuer.answer(PATH, HttpAnswer::body(set(&[&signer])));
    at(&issuer).first_fetch(Some(&data)).await;

    issuer.answer(PATH, HttpAnswer::status(500));
    let identity = at(&issuer);
    identity.first_fetch(Some(&data)).await;
    assert!(is_believed(&identity, &signer));
    let warning = identity.warnings().unwrap();
    assert!(
        warning.contains("status 500; the last ones stay in use"),
        "{warning}"
    );

    // The keys of another issuer are not for this one.
    let other = open(&format!("http://{}/other.json", issuer.address()), "");
    other.first_fetch(Some(&data)).await;
    assert!(!is_believed(&other, &signer));

    data.write("jwks.json", b"{\"url\": 1").unwrap();
    let identity = at(&issuer);
    identity.first_fetch(Some(&data)).await;
    assert!(!is_believed(&identity, &signer));
}

#[tokio::test]
async fn a_redirect_is_followed_on_the_same_server_only() {
    let (issuer, other, signer) = (HttpServer::start(), HttpServer::start(), Signer::new("a"));
    issuer.answer("/moved.json", HttpAnswer::body(set(&[&signer])));
    other.answer("/moved.json", HttpAnswer::body(set(&[&signer])));
    let elsewhere = format!("http://{}/moved.json", other.address());
    let same = format!("http://{}/moved.json", issuer.address());
    let by_name = format!("http://localhost:{}/moved.json", issuer.address().port());
    #[rustfmt::skip]
    let table = [
        ("/moved.json",                     None),
        (same.as_str(),                     None),
        (elsewhere.as_str(),                Some("redirects to another server")),
        (by_name.as_str(),                  Some("redirects to another server")),
        ("https://issuer.example/k",        Some("redirects to another server")),
        ("http://issuer.example/k",         Some("redirect cannot be followed")),
        (PATH,                              Some("more than 3 redirects")),
    ];
    for (to, problem) in table {
        issuer.answer(PATH, HttpAnswer::status(302).header("location", to));
        let identity = at(&issuer);
        identity.first_fetch(None).await;
        match problem {
            None => assert!(is_believed(&identity, &signer), "{to}"),
            Some(problem) => {
                let warning = identity.warnings().unwrap();
                assert!(warning.contains(problem), "{to}: {warning}");
                assert!(!is_believed(&identity, &signer));
            }
        }
    }
    assert_eq!(other.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_given_5_seconds() {
    let issuer = HttpServer::start();
    issuer.answer(PATH, HttpAnswer::silence());
    let identity = Arc::new(at(&issuer));
    let fetching = tokio::spawn({
        let identity = Arc::clone(&identity);
        async move { identity.first_fetch(None).await }
    });
    until("it is asked", || issuer.asked().len() == 1).await;
    assert!(!fetching.is_finished());
    pass(Duration::from_secs(5)).await;
    fetching.await.unwrap();
    let warning = identity.warnings().unwrap();
    assert!(
        warning.contains("no complete answer within 5 s"),
        "{warning}"
    );
}

#[tokio::test]
async fn tls_is_used_with_servers_that_the_authorities_vouch_for() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new(folder.path());
    let (issuer, signer) = (HttpServer::with_tls(&certificates), Signer::new("a"));
    issuer.answer(PATH, HttpAnswer::body(set(&[&signer])));
    let url = format!("https://localhost:{}{PATH}", issuer.address().port());

    let identity = open(
        &url,
        &format!(", jwks_ca: {}", certificates.authority.display()),
    );
    identity.first_fetch(None).await;
    assert_eq!(identity.warnings(), None);
    assert!(is_believed(&identity, &signer));

    let identity = open(&url, "");
    identity.first_fetch(None).await;
    let warning = identity.warnings().unwrap();
    assert!(warning.contains("certificate"), "{warning}");
    assert!(!is_believed(&identity, &signer));
}
