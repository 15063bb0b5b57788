//! Who clients are, with real keys and tokens.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod invalid;
mod readers;
mod remote_keys;

use std::fs;

use http::{HeaderMap, HeaderName, HeaderValue};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::{Attributes, CredentialProblem};

use tidegate_identity::Identity;
use tidegate_server::{Config, Overrides};

const SECRET: &str = "a secret that is long enough for everybody";

/// Headers of a request.
type Said = &'static [(&'static str, &'static str)];

/// A folder with files, and an identity that is set up there.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// Settings in which `@` stands for the folder.
    pub(crate) fn open(&self, yaml: &str) -> Result<Identity, String> {
        let yaml = yaml.replace('@', &format!("{}/", self.0.path().display()));
        self.write("tidegate.yaml", &yaml);
        let file = self.0.path().join("tidegate.yaml");
        let outside = Overrides {
            environment: &|name| (name == "JWT_SECRET").then(|| SECRET.to_owned()),
            variables: Vec::new(),
            flags: vec![("config", file.display().to_string())],
        };
        let config = Config::load(&outside).map_err(|error| error.to_string())?;
        Identity::open(&config.identify, config.trusted_proxies).map_err(|error| error.to_string())
    }
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(
            HeaderName::from_static(name),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    map
}

/// What is known of a client, as `name=value`; `name!` if its credentials are not valid, `name?` if they cannot be
/// verified.
fn known(identity: &Identity, list: &[(&'static str, &str)], query: &str) -> String {
    let headers = headers(list);
    let mut attributes = Attributes::new();
    match identity.describe(&headers, Some(query), &mut attributes) {
        Ok(()) => {
            let values = attributes.iter();
            let values = values.map(|(name, value)| format!("{name}={value}"));
            let refused = attributes.refused().iter();
            let refused = refused.map(|(name, problem)| match problem {
                CredentialProblem::NoKeys => format!("{name}?"),
                _ => format!("{name}!"),
            });
            values.chain(refused).collect::<Vec<_>>().join(" ")
        }
        Err(error) => error.to_string(),
    }
}

/// What an identity that takes `sub` knows of the bearer of a token.
pub(crate) fn bearer(identity: &Identity, token: &str) -> String {
    known(
        identity,
        &[("authorization", &format!("Bearer {token}"))],
        "",
    )
}

pub(crate) fn refused(identity: &Identity) -> Vec<(&'static str, u64)> {
    let refusals = identity.refusals();
    refusals.filter(|(_, count)| *count > 0).collect()
}

/// Seconds from now, as tokens tell time.
fn from_now(seconds: i64) -> i64 {
    jiff::Timestamp::now().as_second() + seconds
}

fn token(algorithm: Algorithm, key: &EncodingKey, claims: &Value) -> String {
    encode(&Header::new(algorithm), claims, key).unwrap()
}

fn secret_token(claims: &Value) -> String {
    token(
        Algorithm::HS256,
        &EncodingKey::from_secret(SECRET.as_bytes()),
        claims,
    )
}

pub(crate) fn alice() -> Value {
    json!({"sub": "alice", "exp": from_now(60)})
}

#[test]
fn the_first_source_that_is_there_counts() {
    let folder = Place::new();
    let identity = folder
        .open(
            "identify: {api_key: [{header: x-api-key}, {query: api_key}], session: {cookie: sid}}",
        )
        .unwrap();
    assert_eq!(
        known(&identity, &[("x-api-key", "k1")], "api_key=k1"),
        "api_key=k1"
    );
    assert_eq!(
        known(&identity, &[("x-api-key", "")], "api_key=k2"),
        "api_key=k2"
    );
    assert_eq!(known(&identity, &[("cookie", "sid=s1")], ""), "session=s1");
    let twice = known(&identity, &[("x-api-key", "k1"), ("x-api-key", "k2")], "");
    assert_eq!(twice, "attribute `api_key` is given twice");
    assert_eq!(
        known(
            &identity,
            &[("x-user-id", "u1"), ("user_id", "u1")],
            "user_id=u1"
        ),
        ""
    );
    assert_eq!(known(&Identity::default(), &[("x-api-key", "k1")], ""), "");
}

#[test]
fn two_identities_that_a_client_writes_are_refused() {
    let folder = Place::new();
    folder.write("clients.yaml", "clients:\n  real: {tier: pro}\n");
    let sources = "[{header: x-api-key}, {query: api_key}, {cookie: key}]";
    for table in ["", "clients_file: @clients.yaml\n"] {
        let identity = folder
            .open(&format!("identify: {{api_key: {sources}}}\n{table}"))
            .unwrap();
        let refused: [(Said, &str); 5] = [
            (&[("x-api-key", "junk")], "api_key=real"),
            (&[("x-api-key", "real")], "api_key=junk"),
            (&[("cookie", "key=junk")], "api_key=real"),
            (&[("x-api-key", "real"), ("cookie", "key=junk")], ""),
            (
                &[("x-api-key", "real"), ("cookie", "key=junk")],
                "api_key=real",
            ),
        ];
        for (list, query) in refused {
            let said = known(&identity, list, query);
            let expected = "the request gives two different values for `api_key`";
            assert!(said.starts_with(expected), "{list:?} {query}: {said}");
        }
        let same: [(Said, &str); 5] = [
            (&[("x-api-key", "real")], "api_key=%72eal"),
            (&[("x-api-key", " real ")], "api_key="),
            (&[("x-api-key", "")], "api_key=real"),
            (&[("cookie", "key=\"\\162eal\"")], "api_key=real"),
            (
                &[("x-api-key", "real"), ("cookie", "key=real; key=%72eal")],
                "",
            ),
        ];
        for (list, query) in same {
            assert_eq!(
                known(&identity, list, query),
                "api_key=real",
                "{list:?} {query}"
            );
        }
    }
}

#[test]
fn what_is_verified_or_looked_up_never_conflicts_and_is_taken_in_order() {
    let folder = Place::new();
    folder.write("clients.yaml", "clients:\n  k1: {user_id: from-table}\n");
    let open = |sources: &str| {
        let yaml = format!(
            "identify: {{api_key: {{header: x-api-key}}, user_id: {sources}}}\nclients_file: @clients.yaml\njwt: {{secret_env: JWT_SECRET}}"
        );
        folder.open(&yaml).unwrap()
    };
    let token = format!("Bearer {}", secret_token(&alice()));
    let all = [
        ("x-api-key", "k1"),
        ("authorization", token.as_str()),
        ("x-user", "written"),
    ];
    #[rustfmt::skip]
    let table = [
        ("[{jwt: sub}, {client: user_id}, {header: x-user}]",   "alice"),
        ("[{client: user_id}, {jwt: sub}, {header: x-user}]",   "from-table"),
        ("[{header: x-user}, {client: user_id}, {jwt: sub}]",   "written"),
        ("[{jwt: none}, {header: x-user}, {client: user_id}]",  "written"),
    ];
    for (sources, user) in table {
        let said = known(&open(sources), &all, "");
        assert_eq!(said, format!("api_key=k1 user_id={user}"), "{sources}");
    }
    // What the client writes must agree, also where something else comes first.
    let identity = open("[{jwt: sub}, {header: x-user}, {query: user}]");
    let said = known(&identity, &all, "user=other");
    assert!(
        said.starts_with("the request gives two different"),
        "{said}"
    );
}

#[test]
fn a_cookie_in_another_spelling_is_the_same_identity() {
    let identity = Place::new()
        .open("identify: {session: {cookie: session}}")
        .unwrap();
    for written in [
        "session=abcdef",
        "session=%61bcdef",
        "session=a%62c%64ef",
        "session=\"abcdef\"",
        "session=\"\\141bcdef\"",
        "session=\"%61\\142cdef\"",
        "a=1;session= abcdef ; b=2",
        "session=abcdef; session=%61bcdef",
    ] {
        let said = known(&identity, &[("cookie", written)], "");
        assert_eq!(said, "session=abcdef", "{written}");
    }
    // In pieces, as over HTTP/2.
    let pieces = [("cookie", "a=1"), ("cookie", "session=%61bcdef")];
    assert_eq!(known(&identity, &pieces, ""), "session=abcdef");
    for written in ["session=%zz", "session=\\1", "session=%4"] {
        let said = known(&identity, &[("cookie", written)], "");
        assert_eq!(said, written, "nothing is refused for its spelling");
    }
    let twice = known(&identity, &[("cookie", "session=a; session=b")], "");
    assert_eq!(twice, "attribute `session` is given twice");
}

#[test]
fn a_table_has_the_attributes_of_a_key_and_an_invented_key_is_ignored() {
    let folder = Place::new();
    folder.write(
        "clients.yaml",
        "clients:\n  k1: {user_id: u1, tier: pro}\n  k2:\n",
    );
    let identity = folder
        .open("identify: {api_key: {header: x-api-key}, user_id: {client: user_id}, tier: {client: tier}}\nclients_file: @clients.yaml")
        .unwrap();
    let of = |key: &str| known(&identity, &[("x-api-key", key)], "");
    assert_eq!(of("k1"), "api_key=k1 user_id=u1 tier=pro");
    assert_eq!(of("k2"), "api_key=k2");
    assert_eq!(of("made-up"), "");
    folder.write(
        "clients.yaml",
        "clients:\n  k1: {user_id: u1, tier: free}\n",
    );
    identity.reload();
    assert_eq!(of("k1"), "api_key=k1 user_id=u1 tier=free");
    folder.write("clients.yaml", "clients: nonsense\n");
    identity.reload();
    assert_eq!(of("k1"), "api_key=k1 user_id=u1 tier=free");
}

#[test]
fn claims_of_a_token_are_known_if_it_verifies() {
    let folder = Place::new();
    let identity = folder
        .open("identify: {user_id: {jwt: sub}, tier: {jwt: app.plan}, org: {jwt: https://example.com/org}, roles: {jwt: roles}}\njwt: {secret_env: JWT_SECRET}")
        .unwrap();
    let claims = json!({
        "sub": "alice", "exp": from_now(60), "aud": "another", "roles": ["a"],
        "app": {"plan": "pro"}, "https://example.com/org": 7,
    });
    let token = secret_token(&claims);
    assert_eq!(bearer(&identity, &token), "user_id=alice tier=pro org=7");
    assert_eq!(known(&identity, &[], ""), "");
    assert_eq!(known(&identity, &[("authorization", " ")], ""), "");
    assert!(refused(&identity).is_empty());
    let both = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
    assert_eq!(
        known(&identity, &both, ""),
        "attribute `jwt` is given twice"
    );
}

#[test]
fn a_token_that_does_not_verify_is_invalid_and_is_counted() {
    let folder = Place::new();
    let identity = folder
        .open("identify: {user_id: {jwt: sub}}\njwt: {secret_env: JWT_SECRET, issuer: me, audience: [api, web], leeway: 5s}")
        .unwrap();
    let good = json!({"sub": "alice", "exp": from_now(60), "iss": "me", "aud": ["api", "other"]});
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        secret_token(&claims)
    };
    let without = |name: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(name);
        secret_token(&claims)
    };
    assert_eq!(bearer(&identity, &secret_token(&good)), "user_id=alice");
    let whole = secret_token(&good);
    let (signed, _) = whole.rsplit_once('.').unwrap();
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", whole.split('.').nth(1).unwrap());
    let critical = {
        let header = Header {
            crit: Some(vec!["b64".to_owned()]),
            ..Header::default()
        };
        encode(&header, &good, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
    };
    #[rustfmt::skip]
    let table = [
        ("malformed",       "nonsense".to_owned()),
        ("malformed",       "a.b.c".to_owned()),
        ("algorithm",       unsigned),
        ("malformed",       critical),
        ("too_long",        "x".repeat(10_000)),
        ("algorithm",       token(Algorithm::EdDSA, &ed_key(), &good)),
        ("signature",       format!("{signed}.AAAA")),
        ("signature",       token(Algorithm::HS256, &EncodingKey::from_secret(b"another"), &good)),
        ("expired",         with("exp", json!(from_now(-10)))),
        ("not_yet_valid",   with("nbf", json!(from_now(60)))),
        ("issuer",          with("iss", json!("you"))),
        ("audience",        with("aud", json!("another"))),
        ("missing_claim",   without("exp")),
        ("missing_claim",   without("iss")),
        ("missing_claim",   without("aud")),
    ];
    let mut expected = std::collections::BTreeMap::new();
    for (reason, token) in table {
        assert_eq!(bearer(&identity, &token), "user_id!", "{reason}");
        *expected.entry(reason).or_insert(0) += 1;
        let counted: std::collections::BTreeMap<_, _> = refused(&identity).into_iter().collect();
        assert_eq!(counted, expected, "{reason}: {token}");
    }
    // Within the leeway.
    assert_eq!(
        bearer(&identity, &with("exp", json!(from_now(-2)))),
        "user_id=alice"
    );
}

fn ed_key() -> EncodingKey {
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    EncodingKey::from_ed_pem(pair.serialize_pem().as_bytes()).unwrap()
}

/// Reads one kind of key.
type Reader = fn(&[u8]) -> jsonwebtoken::errors::Result<EncodingKey>;

#[test]
fn the_key_says_by_which_algorithms_it_is_used() {
    let folder = Place::new();
    let yaml = "identify: {user_id: {jwt: sub}}\njwt: {key_file: @key.pem}";
    let table: [(_, Reader, _, _); 3] = [
        (
            &PKCS_RSA_SHA256,
            EncodingKey::from_rsa_pem,
            Algorithm::RS256,
            Some(Algorithm::PS384),
        ),
        (
            &PKCS_ECDSA_P256_SHA256,
            EncodingKey::from_ec_pem,
            Algorithm::ES256,
            None,
        ),
        (
            &PKCS_ED25519,
            EncodingKey::from_ed_pem,
            Algorithm::EdDSA,
            None,
        ),
    ];
    for (kind, read, algorithm, another) in table {
        let pair = KeyPair::generate_for(kind).unwrap();
        let public = pair.public_key_pem();
        folder.write("key.pem", &public);
        let identity = folder.open(yaml).unwrap();
        let key = read(pair.serialize_pem().as_bytes()).unwrap();
        for algorithm in [Some(algorithm), another].into_iter().flatten() {
            let token = token(algorithm, &key, &alice());
            assert_eq!(bearer(&identity, &token), "user_id=alice", "{algorithm:?}");
        }
        // The public key as the secret of another algorithm, which everybody can do.
        for secret in [public.as_bytes(), public.trim().as_bytes()] {
            let forged = token(
                Algorithm::HS256,
                &EncodingKey::from_secret(secret),
                &alice(),
            );
            assert_eq!(bearer(&identity, &forged), "user_id!");
        }
        assert_eq!(refused(&identity), [("algorithm", 2)]);

        let other = KeyPair::generate_for(kind).unwrap();
        folder.write("key.pem", &other.public_key_pem());
        identity.reload();
        let stale = bearer(&identity, &token(algorithm, &key, &alice()));
        assert_eq!(stale, "user_id!");
        assert_eq!(refused(&identity), [("algorithm", 2), ("signature", 1)]);

        folder.write("key.pem", &other.serialize_pem());
        let problem = folder.open(yaml).err().unwrap();
        assert!(problem.contains("it is a private key"), "{problem}");
        assert!(!problem.contains("BEGIN"), "{problem}");
    }
}

#[test]
fn a_set_of_keys_is_searched_by_the_name_of_the_key() {
    let folder = Place::new();
    let pairs = [0, 1, 2].map(|_| KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
    let signing =
        |index: usize| EncodingKey::from_ec_pem(pairs[index].serialize_pem().as_bytes()).unwrap();
    let member = |index: usize, id: &str| {
        let mut jwk =
            jsonwebtoken::jwk::Jwk::from_encoding_key(&signing(index), Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(id.to_owned());
        serde_json::to_value(&jwk).unwrap()
    };
    let unknown = json!({"kty": "AKP", "alg": "ML-DSA-44", "kid": "new", "pub": "x"});
    let for_encryption = {
        let mut jwk = member(2, "c");
        jwk["use"] = json!("enc");
        jwk
    };
    let set = json!({"keys": [unknown, member(0, "a"), member(1, "b"), for_encryption]});
    folder.write("jwks.json", &set.to_string());
    let identity = folder
        .open("identify: {user_id: {jwt: sub}}\njwt: {jwks_file: @jwks.json, from: {header: x-token}}")
        .unwrap();
    let of = |index: usize, id: Option<&str>| {
        let header = Header {
            kid: id.map(str::to_owned),
            ..Header::new(Algorithm::ES256)
        };
        let token = encode(&header, &alice(), &signing(index)).unwrap();
        known(&identity, &[("x-token", &token)], "")
    };
    assert_eq!(of(0, Some("a")), "user_id=alice");
    assert_eq!(of(1, Some("b")), "user_id=alice");
    assert_eq!(of(1, None), "user_id=alice");
    assert_eq!(of(1, Some("a")), "user_id!");
    assert_eq!(of(1, Some("z")), "user_id!");
    assert_eq!(of(2, Some("c")), "user_id!");
    assert_eq!(refused(&identity), [("unknown_key", 2), ("signature", 1)]);

    for (text, expected) in [
        ("[]", "it is not a JSON Web Key Set"),
        ("{", "it is not a JSON Web Key Set"),
        (r#"{"keys": []}"#, "it has no key for signatures"),
    ] {
        folder.write("jwks.json", text);
        let problem = folder
            .open("identify: {user_id: {jwt: sub}}\njwt: {jwks_file: @jwks.json}")
            .err()
            .unwrap();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

const CF: &str = "cf-connecting-ip";
const XFF: &str = "x-forwarded-for";

#[test]
fn an_address_is_taken_from_a_header_of_trusted_proxies_only() {
    let identity = Place::new()
        .open("identify: {ip: {header: cf-connecting-ip}}\ntrusted_proxies: [10.0.0.0/8]")
        .unwrap();
    #[rustfmt::skip]
    let table: [(&str, Said, &str); 8] = [
        ("10.0.0.1",        &[(CF, "203.0.113.7")],                         "203.0.113.7"),
        ("10.0.0.1",        &[(CF, "2001:db8::7"), (XFF, "6.6.6.6")],       "2001:db8::7"),
        ("10.0.0.1",        &[(XFF, "6.6.6.6, 203.0.113.8")],               "203.0.113.8"),
        ("10.0.0.1",        &[(CF, "203.0.113.7"), (CF, "203.0.113.8")],    "refused"),
        ("10.0.0.1",        &[(CF, "nonsense"), (XFF, "203.0.113.8")],      "10.0.0.1"),
        ("10.0.0.1",        &[],                                            "10.0.0.1"),
        ("::ffff:10.0.0.1", &[(CF, "203.0.113.7")],                         "203.0.113.7"),
        ("192.0.2.1",       &[(CF, "203.0.113.7"), (XFF, "203.0.113.7")],   "192.0.2.1"),
    ];
    for (peer, list, expected) in table {
        let client = client(&identity, peer, list);
        assert_eq!(client, expected, "{peer} {list:?}");
    }
}

/// The address that is known of a client, or `refused`.
fn client(identity: &Identity, peer: &str, list: Said) -> String {
    let client = identity.client_address(peer.parse().unwrap(), &headers(list));
    client.map_or_else(|_| "refused".to_owned(), |ip| ip.to_string())
}

#[test]
fn forwarded_and_x_forwarded_for_must_agree_or_one_of_them_is_read() {
    const FORWARDED: &str = "forwarded";
    let open = |setting: &str| {
        let yaml = format!("trusted_proxies: [10.0.0.0/8]\n{setting}");
        Place::new().open(&yaml).unwrap()
    };
    let identities = [
        open(""),
        open("forwarded_header: both"),
        open("forwarded_header: x-forwarded-for"),
        open("forwarded_header: forwarded"),
    ];
    let differ: Said = &[(XFF, "203.0.113.7"), (FORWARDED, "for=198.51.100.1")];
    let agree: Said = &[(XFF, "203.0.113.7"), (FORWARDED, "for=203.0.113.7")];
    let x_only: Said = &[(XFF, "203.0.113.7")];
    let forwarded_only: Said = &[(FORWARDED, "for=203.0.113.7")];
    #[rustfmt::skip]
    let table = [
        // headers          none given      both            x-forwarded-for     forwarded
        (differ,            ["refused",     "refused",      "203.0.113.7",      "198.51.100.1"]),
        (agree,             ["203.0.113.7"; 4]),
        (x_only,            ["203.0.113.7", "203.0.113.7",  "203.0.113.7",      "10.0.0.1"]),
        (forwarded_only,    ["203.0.113.7", "203.0.113.7",  "10.0.0.1",         "203.0.113.7"]),
    ];
    for (list, expected) in table {
        for (identity, expected) in identities.iter().zip(expected) {
            assert_eq!(client(identity, "10.0.0.1", list), expected, "{list:?}");
            assert_eq!(client(identity, "192.0.2.1", list), "192.0.2.1", "{list:?}");
        }
    }
}

#[test]
fn contradicting_settings_are_reported() {
    let folder = Place::new();
    folder.write("empty", "");
    #[rustfmt::skip]
    let table = [
        ("identify: {}",                                        "say where an attribute comes from"),
        ("identify: []",                                        "this must be a map"),
        ("identify: {api_key: []}",                             "give at least one source"),
        ("identify: {api_key: x}",                              "this must be a map with keys"),
        ("identify: {api_key: {header: x, query: y}}",          "a source is one of"),
        ("identify: {api_key: {headers: x}}",                   "did you mean `header`"),
        ("identify: {api_key: {header: 'a b'}}",                "`a b` cannot be the name of a header"),
        ("identify: {path: {header: x}}",                       "`path` is always that of the request"),
        ("identify: {header.x: {header: x}}",                   "`header.x` is always that of the request"),
        ("identify: {'a b': {header: x}}",                      "cannot be the name"),
        ("identify: {ip: {query: x}}",                          "an address can only come from a header"),
        ("identify: {user_id: {jwt: sub}}",                     "this needs the setting `jwt`"),
        ("identify: {tier: {client: tier}}",                    "this needs the setting `clients_file`"),
        ("identify: {tier: {client: tier}}\nclients_file: x",   "say in `identify.api_key`"),
        ("identify: {api_key: {client: k}}\nclients_file: x",   "it cannot come from their table"),
        ("identify: {user_id: {jwt: sub}}\njwt: {}",            "give one of `key_file`"),
        ("jwt: {key_file: a, jwks_file: b}",                    "give one of `key_file`"),
        ("jwt: {secret_env: NONE}",                             "`NONE` is not set or empty"),
        ("jwt: {key_file: a, algorithms: [none]}",              "expected one of RS256"),
        ("jwt: {jwks_url: http://issuer.example/k}",            "write an `https://` URL"),
        ("jwt: {jwks_url: https://a/k, jwks_file: b}",          "give one of `key_file`"),
        ("jwt: {jwks_file: a, jwks_ca: b}",                     "field `jwt.jwks_ca`"),
        ("jwt: {key_file: a, leeway: 2h}",                      "give at most `1h`"),
        ("jwt: {key_file: a, from: {query: token}}",            "a token comes from"),
        ("jwt: {secret: abc}",                                  "unknown key `secret`"),
        ("identify: {user_id: {jwt: sub}}\njwt: {key_file: @absent}",       "cannot read `"),
        ("identify: {user_id: {jwt: sub}}\njwt: {key_file: @empty}",        "is not the PEM form"),
        ("identify: {user_id: {jwt: sub}}\njwt: {secret_file: @empty}",     "it is empty"),
        ("identify: {a: {header: x}}\nclients_file: @absent",               "cannot read `"),
        ("underscore_headers: keep",                            "`drop`"),
        ("forwarded_header: x-real-ip",                         "`x-forwarded-for`"),
    ];
    for (yaml, expected) in table {
        let problem = folder.open(yaml).err().unwrap_or_default();
        assert!(
            problem.contains(expected),
            "{yaml}\n{expected}\n---\n{problem}"
        );
    }
    let algorithms =
        "identify: {user_id: {jwt: sub}}\njwt: {key_file: @key.pem, algorithms: [ES256]}";
    folder.write(
        "key.pem",
        &KeyPair::generate_for(&PKCS_ED25519)
            .unwrap()
            .public_key_pem(),
    );
    let problem = folder.open(algorithms).err().unwrap();
    assert!(
        problem.contains("with any of `jwt.algorithms`"),
        "{problem}"
    );
}
