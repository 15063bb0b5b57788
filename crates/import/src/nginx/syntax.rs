//! The syntax of nginx: words, quotes, comments and blocks, as a tree of directives.
//!
//! Words are read as nginx reads them: `\"`, `\'`, `\\`, `\t`, `\r` and `\n` are escapes, any other backslash stays.

use crate::report::ConfigLine;

/// How deep blocks may be nested.
const MAX_DEPTH: usize = 32;
/// How many directives a file may have.
const MAX_DIRECTIVES: usize = 100_000;

/// Directives that have no block: one that has is not terminated, and would hide what follows.
const WITHOUT_BLOCK: [&str; 19] = [
    "access_log",
    "error_log",
    "include",
    "index",
    "limit_conn",
    "limit_conn_status",
    "limit_conn_zone",
    "limit_req",
    "limit_req_dry_run",
    "limit_req_status",
    "limit_req_zone",
    "listen",
    "proxy_pass",
    "proxy_set_header",
    "return",
    "root",
    "server_name",
    "set",
    "try_files",
];

/// A directive with its words, and its block if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directive {
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    pub(crate) block: Option<Vec<Directive>>,
    pub(crate) at: ConfigLine,
}

impl Directive {
    /// The word at this index, or an empty one.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    pub(crate) fn children(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// A mistake: its line, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxMistake {
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// The directives of a file.
pub(crate) fn parse(text: &str, file: usize) -> Result<Vec<Directive>, SyntaxMistake> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = DirectiveParser {
        rest: text.chars().peekable(),
        line: 1,
        file,
        count: 0,
    };
    parser.block(0)
}

struct DirectiveParser<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    line: usize,
    file: usize,
    count: usize,
}

/// What ends a word or a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SyntaxToken {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

impl DirectiveParser<'_> {
    /// The directives up to the `}` of this block, or up to the end of the file.
    fn block(&mut self, depth: usize) -> Result<Vec<Directive>, SyntaxMistake> {
        if depth > MAX_DEPTH {
            return self.mistake(format!("blocks are nested more than {MAX_DEPTH} deep"));
        }
        let mut directives = Vec::new();
        loop {
            let name = match self.token()? {
                SyntaxToken::Word(word) => word,
                SyntaxToken::Semicolon => return self.mistake("unexpected `;`"),
                SyntaxToken::Open => return self.mistake("unexpected `{`"),
                SyntaxToken::Close if depth == 0 => return self.mistake("unexpected `}`"),
                SyntaxToken::End if depth > 0 => {
                    return self.mistake("the file ends within a block, expected `}`");
                }
                SyntaxToken::Close | SyntaxToken::End => return Ok(directives),
            };
            self.count += 1;
            if self.count > MAX_DIRECTIVES {
                return self.mistake(format!("more than {MAX_DIRECTIVES} directives"));
            }
            directives.push(self.directive(name, depth)?);
        }
    }

    fn directive(&mut self, name: String, depth: usize) -> Result<Directive, SyntaxMistake> {
        let at = ConfigLine {
            file: self.file,
            line: self.line,
        };
        let mut words = Vec::new();
        let block = loop {
            match self.token()? {
                SyntaxToken::Word(word) => words.push(word),
                SyntaxToken::Semicolon => break None,
                SyntaxToken::Open if name.ends_with("_by_lua_block") => {
                    words.push(self.lua()?);
                    break Some(Vec::new());
                }
                SyntaxToken::Open if WITHOUT_BLOCK.contains(&name.as_str()) => {
                    return Err(SyntaxMistake {
                        line: at.line,
                        message: format!("`{name}` does not end with `;`"),
                    });
                }
                SyntaxToken::Open => break Some(self.block(depth + 1)?),
                SyntaxToken::Close => {
                    return self.mistake(format!("unexpected `}}`: `{name}` has no `;`"));
                }
                SyntaxToken::End => {
                    return self.mistake(format!("the file ends within `{name}`, expected `;`"));
                }
            }
        };
        Ok(Directive {
            name,
            words,
            block,
            at,
        })
    }

    fn mistake<T>(&self, message: impl Into<String>) -> Result<T, SyntaxMistake> {
        Err(SyntaxMistake {
            line: self.line,
            message: message.into(),
        })
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        if next == Some('\n') {
            self.line += 1;
        }
        next
    }

    fn token(&mut self) -> Result<SyntaxToken, SyntaxMistake> {
        loop {
            let Some(&first) = self.rest.peek() else {
                return Ok(SyntaxToken::End);
            };
            match first {
                ' ' | '\t' | '\r' | '\n' => {
                    self.next();
                }
                '#' => while self.next().is_some_and(|c| c != '\n') {},
                ';' | '{' | '}' => {
                    self.next();
                    return Ok(match first {
                        ';' => SyntaxToken::Semicolon,
                        '{' => SyntaxToken::Open,
                        _ => SyntaxToken::Close,
                    });
                }
                '"' | '\'' => {
                    self.next();
                    return self.quoted(first);
                }
                _ => return Ok(SyntaxToken::Word(self.bare())),
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<SyntaxToken, SyntaxMistake> {
        let begins = self.line;
        let mut word = String::new();
        loop {
            match self.next() {
                None => {
                    return Err(SyntaxMistake {
                        line: begins,
                        message: format!("the file ends within a word in {quote}"),
                    });
                }
                Some('\\') => self.escape(&mut word),
                Some(c) if c == quote => break,
                Some(c) => word.push(c),
            }
        }
        match self.rest.peek() {
            // The last one ends the condition of an `if`.
            None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => Ok(SyntaxToken::Word(word)),
            Some(other) => {
                let message = format!("unexpected `{other}` after a word in quotes");
                self.mistake(message)
            }
        }
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        while let Some(&c) = self.rest.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' => break,
                // `${name}` is a variable, any other brace begins a block.
                '{' if !word.ends_with('$') => break,
                '\\' => {
                    self.next();
                    self.escape(&mut word);
                }
                _ => {
                    self.next();
                    word.push(c);
                }
            }
        }
        word
    }

    /// What follows a backslash.
    fn escape(&mut self, word: &mut String) {
        match self.next() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    /// The text of a block of Lua, up to the brace that closes it.
    fn lua(&mut self) -> Result<String, SyntaxMistake> {
        let begins = self.line;
        let mut code = String::new();
        let mut open = 1_usize;
        while let Some(c) = self.next() {
            match c {
                '{' => open += 1,
                '}' => {
                    open -= 1;
                    if open == 0 {
                        return Ok(code);
                    }
                }
                '"' | '\'' => {
                    code.push(c);
                    while let Some(inner) = self.next() {
                        code.push(inner);
                        match inner {
                            '\\' => code.extend(self.next()),
                            _ if inner == c || inner == '\n' => break,
                            _ => {}
                        }
                    }
                    continue;
                }
                '-' if self.rest.peek() == Some(&'-') => {
                    while self.next().is_some_and(|c| c != '\n') {}
                    continue;
                }
                _ => {}
            }
            code.push(c);
        }
        Err(SyntaxMistake {
            line: begins,
            message: "the file ends within a block of Lua".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        fn write(directives: &[Directive], out: &mut Vec<String>) {
            for directive in directives {
                out.push(format!(
                    "{}:{}{:?}",
                    directive.at.line, directive.name, directive.words
                ));
                if let Some(block) = &directive.block {
                    out.push("{".to_owned());
                    write(block, out);
                    out.push("}".to_owned());
                }
            }
        }
        match parse(text, 0) {
            Ok(directives) => {
                let mut out = Vec::new();
                write(&directives, &mut out);
                out.join(" ")
            }
            Err(mistake) => format!("line {}: {}", mistake.line, mistake.message),
        }
    }

    #[test]
    fn words_by_hand() {
        #[rustfmt::skip]
        let table = [
            ("a;",                          "1:a[]"),
            ("a b  c;\nd;",                 r#"1:a["b", "c"] 2:d[]"#),
            ("a \"b c\" 'd;';",             r#"1:a["b c", "d;"]"#),
            (r#"a "x\"y\\z\d";"#,           r#"1:a["x\"y\\z\\d"]"#),
            (r"~ \.php$ x;",                r#"1:~["\\.php$", "x"]"#),
            ("a # b;\nc;",                  r#"1:a["c"]"#),
            ("a b#c;",                      r#"1:a["b#c"]"#),
            ("a ${b}c;",                    r#"1:a["${b}c"]"#),
            ("s { l / { x 1; } }",          r#"1:s[] { 1:l["/"] { 1:x["1"] } }"#),
            ("l /{x;}",                     r#"1:l["/"] { 1:x[] }"#),
            ("m \"\" a;",                   r#"1:m["", "a"]"#),
            ("if ($a = \"b\") { x; }",      r#"1:if["($a", "=", "b", ")"] { 1:x[] }"#),
            ("x_by_lua_block { a = \"}\" -- }\n if x then y{} end } b;", r#"1:x_by_lua_block[" a = \"}\"  if x then y{} end "] { } 2:b[]"#),
            ("a",                           "line 1: the file ends within `a`, expected `;`"),
            ("a {\n b;",                    "line 2: the file ends within a block, expected `}`"),
            ("a; }",                        "line 1: unexpected `}`"),
            ("a { b }",                     "line 1: unexpected `}`: `b` has no `;`"),
            ("a;\nlisten 80\nl / { x; }",   "line 2: `listen` does not end with `;`"),
            (";",                           "line 1: unexpected `;`"),
            ("{",                           "line 1: unexpected `{`"),
            ("a \"b",                       "line 1: the file ends within a word in \""),
            ("a \"b\"c;",                   "line 1: unexpected `c` after a word in quotes"),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), expected, "{text}");
        }
        let deep = "a {".repeat(100);
        assert_eq!(shown(&deep), "line 1: blocks are nested more than 32 deep");
    }
}
