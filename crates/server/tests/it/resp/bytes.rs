//! Bytes that are no commands, commands in pieces, and many at once.

use super::client::command;
use super::{Client, Value, serve};
use tidegate_testkit_server::TestFolder;

#[test]
fn what_is_no_command_is_answered_and_ends_the_connection() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let many = "*1\r\n".repeat(1_000);
    let line = "x".repeat(20_000);
    #[rustfmt::skip]
    let table = [
        ("*x\r\n",                                      "-ERR Protocol error: invalid multibulk length"),
        ("*2147483648\r\n",                             "-ERR Protocol error: invalid multibulk length"),
        ("*1\r\n$2147483647\r\n",                       "-ERR Protocol error: invalid bulk length"),
        ("*1\r\n$-5\r\n",                               "-ERR Protocol error: invalid bulk length"),
        (many.as_str(),                                 "-ERR Protocol error: expected '$', got '*'"),
        (line.as_str(),                                 "-ERR Protocol error: too big inline request"),
        ("ECHO 'a\r\n",                                 "-ERR Protocol error: unbalanced quotes in request"),
        ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",  "-ERR this is not an HTTP port"),
    ];
    for (sent, wanted) in table {
        let mut client = Client::to(&server);
        client.send(sent.as_bytes());
        let reply = client.rest();
        assert!(reply.starts_with(wanted), "{sent:.40}: {reply}");
    }
    assert_eq!(Client::to(&server).ask("PING"), Value::text("PONG"));
}

#[test]
fn commands_come_in_pieces_and_many_at_once() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let mut client = Client::to(&server);
    for byte in command("CL.THROTTLE pieces 15 30 60") {
        client.send(&[byte]);
    }
    assert_eq!(client.reply(), Value::integers(&[0, 16, 15, -1, 2]));

    // All of them are sent before a reply is read, in one version and then in the other.
    let batch = [command("CL.THROTTLE many 199 1 86400"), command("ECHO x")].concat();
    client.send(&batch.repeat(100));
    client.send(&command("HELLO 3"));
    client.send(b"CLIENT GETNAME\r\n\r\nping\n");
    for remaining in (100..200).rev() {
        let Value::Array(reply) = client.reply() else {
            panic!("an array");
        };
        assert_eq!(reply[2], Value::Integer(remaining));
        assert_eq!(client.reply(), Value::text("x"));
    }
    assert!(matches!(client.reply(), Value::Map(_)));
    assert_eq!(client.reply(), Value::Null);
    assert_eq!(client.reply(), Value::text("PONG"));
}

#[test]
fn keys_are_bytes() {
    let folder = TestFolder::new();
    let server = serve(&folder, &[]);
    let mut client = Client::to(&server);
    let mut throttle = |key: &[u8]| {
        let head = format!("*5\r\n$11\r\nCL.THROTTLE\r\n${}\r\n", key.len());
        let tail = b"\r\n$1\r\n9\r\n$1\r\n1\r\n$5\r\n86400\r\n";
        client.send(&[head.as_bytes(), key, tail].concat());
        match client.reply() {
            Value::Array(reply) => reply[2].clone(),
            other => panic!("{other:?}"),
        }
    };
    for key in [&b"\xff"[..], b"\0ff", b"", b"\r\n", "é".as_bytes()] {
        assert_eq!(throttle(key), Value::Integer(9), "{key:?}");
        assert_eq!(throttle(key), Value::Integer(8), "{key:?}");
    }
}

#[test]
fn values_of_attributes_are_bytes_and_do_not_collide() {
    let folder = TestFolder::new();
    folder.write(
        "rules.yaml",
        "rules: [{id: key, per: [api_key], missing: deny, limit: 1/hour}]",
    );
    let server = serve(&folder, &["--rules", "rules.yaml"]);
    let mut client = Client::to(&server);
    let mut check = |key: &[u8]| match client.ask_words(&[&b"TG.CHECK"[..], b"api_key", key]) {
        Value::Array(reply) => reply[1].clone(),
        other => panic!("{other:?}"),
    };
    let replaced = "k\u{fffd}".as_bytes();
    let form = "k\u{fffd}FF".as_bytes();
    for key in [&b"k\xff"[..], b"k\xfe", replaced, form, b"k"] {
        assert_eq!(check(key), Value::Integer(1), "{key:?}");
        assert_eq!(check(key), Value::Integer(0), "{key:?}");
    }
    let name = client.ask_words(&[&b"TG.CHECK"[..], b"\xff", b"1"]);
    let error = name.error();
    assert!(error.contains("the name of an attribute"), "{error}");
    let path = client.ask_words(&[&b"TG.CHECK"[..], b"path", b"/\xff"]);
    assert!(path.error().contains("attribute `path`"));
}
