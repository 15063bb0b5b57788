//! Commands as they are written, and values as they are read, whatever the client is that sends and receives them.

/// A command under construction: its arguments, the first of which is its name.
pub trait CommandWriter: Default {
    /// Adds an argument.
    fn write(&mut self, argument: &[u8]);

    /// Adds an argument, and returns the command for the next.
    fn arg(&mut self, argument: impl CommandArgument) -> &mut Self {
        argument.write_to(self);
        self
    }
}

impl CommandWriter for Vec<Vec<u8>> {
    fn write(&mut self, argument: &[u8]) {
        self.push(argument.to_vec());
    }
}

/// What an argument is made of.
pub trait CommandArgument {
    /// Adds it to a command.
    fn write_to<C: CommandWriter>(&self, command: &mut C);
}

impl CommandArgument for &str {
    fn write_to<C: CommandWriter>(&self, command: &mut C) {
        command.write(self.as_bytes());
    }
}

impl CommandArgument for String {
    fn write_to<C: CommandWriter>(&self, command: &mut C) {
        command.write(self.as_bytes());
    }
}

impl CommandArgument for &String {
    fn write_to<C: CommandWriter>(&self, command: &mut C) {
        command.write(self.as_bytes());
    }
}

impl CommandArgument for u64 {
    fn write_to<C: CommandWriter>(&self, command: &mut C) {
        command.write(itoa::Buffer::new().format(*self).as_bytes());
    }
}

impl CommandArgument for usize {
    fn write_to<C: CommandWriter>(&self, command: &mut C) {
        command.write(itoa::Buffer::new().format(*self).as_bytes());
    }
}

/// A value that a server answered with.
pub trait ReplyValue: Sized {
    /// The number, if it is one.
    fn number(&self) -> Option<i64>;
    /// The text, if it is one: a bulk or a simple string.
    fn text(&self) -> Option<&[u8]>;
    /// The values, if it is an array.
    fn values(&self) -> Option<&[Self]>;
}

#[cfg(any(test, feature = "redis"))]
impl CommandWriter for redis::Cmd {
    fn write(&mut self, argument: &[u8]) {
        redis::RedisWrite::write_arg(self, argument);
    }
}

#[cfg(any(test, feature = "redis"))]
impl ReplyValue for redis::Value {
    fn number(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    fn text(&self) -> Option<&[u8]> {
        match self {
            Self::BulkString(bytes) => Some(bytes),
            Self::SimpleString(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    fn values(&self) -> Option<&[Self]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }
}
