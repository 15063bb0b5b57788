//! Credentials that are there and not valid: which attributes are refused for them, and what is left to the next
//! source.

use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};

use crate::{Place, alice, known, secret_token, token};

/// A token that only its issuer has signed.
struct Issued {
    folder: Place,
    token: String,
}

fn issued() -> Issued {
    let folder = Place::new();
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    folder.write("key.pem", &pair.public_key_pem());
    let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
    let token = token(Algorithm::ES256, &key, &alice());
    Issued { folder, token }
}

#[test]
fn a_respelled_token_is_invalid_and_not_missing() {
    let Issued { folder, token } = issued();
    let yaml = "identify: {user_id: [{jwt: sub}, {header: x-user}]}\njwt: {key_file: @key.pem}";
    let identity = folder.open(yaml).unwrap();
    let of = |value: &str| known(&identity, &[("authorization", value), ("x-user", "u1")], "");
    assert_eq!(of(&format!("Bearer {token}")), "user_id=alice");
    let (rest, last) = token.split_at(token.len() - 1);
    // The last character of a signature of 64 bytes has four bits that base64 does not use.
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let index = alphabet.find(last).unwrap();
    let other = &alphabet[index ^ 1..=index ^ 1];
    let (signed, signature) = token.rsplit_once('.').unwrap();
    for respelled in [
        format!("Bearer {rest}{other}"),
        format!("Bearer {token}="),
        format!("Bearer {token}=="),
        format!("Bearer {token}!"),
        format!("Bearer {token},x"),
        format!("Bearer {signed}."),
        format!("Bearer {signed}.{}", signature.replace(['-', '_'], "+")),
        format!("Bearer {token} x"),
        format!("Bearer\t{token}\tx"),
        format!("Bearer {token}\u{a0}x"),
        format!("Token {token}"),
        format!("JWT {token}"),
        format!("Bearer: {token}"),
    ] {
        if respelled != format!("Bearer {token}") {
            assert_eq!(of(&respelled), "user_id!", "{respelled}");
        }
    }
}

#[test]
fn what_is_no_token_in_form_is_left_to_the_next_source() {
    let folder = Place::new();
    let table = [
        // sources, Authorization, x-user, known
        (
            "[{jwt: sub}, {header: x-user}]",
            "Bearer opaque",
            "u1",
            "user_id=u1",
        ),
        (
            "[{jwt: sub}, {header: x-user}]",
            "Bearer opaque",
            "",
            "user_id!",
        ),
        (
            "[{jwt: sub}, {header: x-user}]",
            "Bearer a.b.c",
            "u1",
            "user_id=u1",
        ),
        (
            "[{jwt: sub}, {header: x-user}]",
            "Basic dTpw",
            "u1",
            "user_id=u1",
        ),
        (
            "[{jwt: sub}, {header: x-user}]",
            "Basic dTpw",
            "",
            "user_id!",
        ),
        ("[{jwt: sub}, {header: x-user}]", "", "u1", "user_id=u1"),
        ("[{jwt: sub}, {header: x-user}]", "", "", ""),
        (
            "[{jwt: sub}, {header: authorization}]",
            "Bearer opaque",
            "",
            "user_id=opaque",
        ),
        (
            "[{jwt: sub}, {header: authorization}]",
            "Basic dT.pw",
            "",
            "user_id=basic dTpw",
        ),
        (
            "[{header: authorization}]",
            "Bearer opaque x",
            "",
            "user_id!",
        ),
        (
            "[{header: authorization}, {header: x-user}]",
            "Basic !",
            "u1",
            "user_id!",
        ),
        (
            "[{header: x-user}, {header: authorization}]",
            "Bearer a b",
            "u1",
            "user_id!",
        ),
        (
            "[{header: x-user}, {jwt: sub}]",
            "Bearer opaque",
            "u1",
            "user_id=u1",
        ),
    ];
    for (sources, authorization, user, expected) in table {
        let yaml = format!("identify: {{user_id: {sources}}}\njwt: {{secret_env: JWT_SECRET}}");
        let identity = folder.open(&yaml).unwrap();
        let list = [("authorization", authorization), ("x-user", user)];
        let said = known(&identity, &list, "");
        assert_eq!(said, expected, "{sources} {authorization} {user}");
    }
}

#[test]
fn an_unknown_key_is_missing_unless_the_table_is_complete() {
    let folder = Place::new();
    folder.write("clients.yaml", "clients:\n  k1: {user_id: u1, tier: pro}\n");
    let open = |more: &str| {
        let yaml = format!(
            "identify: {{api_key: {{header: x-api-key}}, user_id: [{{client: user_id}}, {{jwt: sub}}], tier: {{client: tier}}}}\nclients_file: @clients.yaml\njwt: {{secret_env: JWT_SECRET}}\n{more}"
        );
        folder.open(&yaml).unwrap()
    };
    let token = format!("Bearer {}", secret_token(&alice()));
    for (more, expected) in [
        ("", "user_id=alice"),
        ("clients_complete: false", "user_id=alice"),
        ("clients_complete: true", "api_key! user_id! tier!"),
    ] {
        let identity = open(more);
        let list = [("x-api-key", "made-up"), ("authorization", token.as_str())];
        assert_eq!(known(&identity, &list, ""), expected, "{more}");
        let list = [("x-api-key", "k1")];
        assert_eq!(
            known(&identity, &list, ""),
            "api_key=k1 user_id=u1 tier=pro"
        );
        assert_eq!(known(&identity, &[], ""), "", "{more}");
    }
}
