//! Commands by hand, and any bytes in any pieces.

use proptest::prelude::*;

use super::*;

/// The commands in these bytes, and why they end early if they do.
fn commands(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, usize, Option<ProtocolError>) {
    let (mut arguments, mut all, mut at) = (Arguments::default(), Vec::new(), 0);
    loop {
        match arguments.read(&bytes[at..]) {
            Ok(Some(length)) => {
                let command = arguments.of(&bytes[at..at + length]);
                all.push(command.from(0).map(<[u8]>::to_vec).collect());
                at += length;
            }
            Ok(None) => return (all, at, None),
            Err(error) => return (all, at, Some(error)),
        }
    }
}

fn error(bytes: &[u8]) -> Option<ProtocolError> {
    commands(bytes).2
}

#[test]
fn commands_by_hand() {
    let (all, end, error) =
        commands(b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n*0\r\n\r\nPING\r\n*-1\r\n*1\r\n$4\r\nPI");
    assert_eq!(error, None);
    assert_eq!(end, 40, "the last is not all there");
    let words: Vec<Vec<&[u8]>> = vec![
        vec![b"ECHO", b"a\r\n"],
        vec![],
        vec![],
        vec![b"PING"],
        vec![],
    ];
    assert_eq!(all, words);
}

#[test]
fn each_malformed_command_has_its_own_error() {
    let many = format!("*{}\r\n", MAX_ARGUMENTS + 1);
    let long = format!("*1\r\n${}\r\n", MAX_BULK + 1);
    let line = vec![b'x'; MAX_LINE];
    let bulk = format!("${MAX_BULK}\r\n{}\r\n", "x".repeat(MAX_BULK));
    let large = format!("*17\r\n{}", bulk.repeat(17));
    let words = "a ".repeat(MAX_ARGUMENTS + 1) + "\n";
    #[rustfmt::skip]
    let table: [(&[u8], ProtocolError); 18] = [
        (b"*x\r\n",                         ProtocolError::Count),
        (b"*\r\n",                          ProtocolError::Count),
        (b"*1\n",                           ProtocolError::Count),
        (b"*1\rx",                          ProtocolError::Count),
        (b"*99999999999999999999\r\n",      ProtocolError::Count),
        (many.as_bytes(),                   ProtocolError::Count),
        (words.as_bytes(),                  ProtocolError::Count),
        (b"*1\r\n*1\r\n*1\r\n",             ProtocolError::NotBulk(b'*')),
        (b"*1\r\n:1\r\n",                   ProtocolError::NotBulk(b':')),
        (b"*1\r\n$-1\r\n",                  ProtocolError::Length),
        (b"*1\r\n$\r\n",                    ProtocolError::Length),
        (b"*1\r\n$512000000\r\n",           ProtocolError::Length),
        (b"*1\r\n$9223372036854775807\r\n", ProtocolError::Length),
        (long.as_bytes(),                   ProtocolError::Length),
        (b"*1\r\n$1\r\nxyz",                ProtocolError::NoEnd),
        (large.as_bytes(),                  ProtocolError::TooLong),
        (&line,                             ProtocolError::LineTooLong),
        (b"ECHO \"x\r\n",                   ProtocolError::Quotes),
    ];
    for (bytes, wanted) in table {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        assert_eq!(error(bytes), Some(wanted), "{start}");
    }
}

/// Bytes that come near to being commands.
fn any_input() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::collection::vec(any::<u8>(), 0..20);
    let sound = prop::collection::vec(word, 0..6).prop_map(|words| {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        bytes
    });
    let near = "[*$:\"'\\\\ x0-9\r\n-]{0,24}".prop_map(String::into_bytes);
    let any = prop::collection::vec(any::<u8>(), 0..40);
    let piece = prop_oneof![4 => sound, 2 => near, 1 => any];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    /// However the bytes arrive, the same commands are read, and the same error ends them.
    #[test]
    fn pieces_make_no_difference(input in any_input(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10)) {
        let whole = commands(&input);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.push(input.len());
        cuts.sort_unstable();
        let (mut all, mut at, mut error) = (Vec::new(), 0, None);
        for cut in cuts {
            if error.is_none() {
                let (some, read, problem) = commands(&input[at..cut.max(at)]);
                all.extend(some);
                at += read;
                error = problem;
            }
        }
        prop_assert_eq!(whole, (all, at, error));
    }
}
