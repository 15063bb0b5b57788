//! Makes descriptors of lines such as `repeated string names = 1`.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, MessageOptions, MethodDescriptorProto, OneofDescriptorProto,
    ServiceDescriptorProto,
};

/// A file of this package, which needs these others.
pub(super) fn file(name: &str, package: &str, needs: &[&str]) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        dependency: needs.iter().map(|&name| name.to_owned()).collect(),
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

/// A message with these fields: `string name = 1`, `.package.Message field = 2`, `enum .package.Enum
/// field = 3`, each perhaps after `repeated`, or after `oneof NAME`.
pub(super) fn message(name: &str, fields: &[&str]) -> DescriptorProto {
    let mut message = DescriptorProto {
        name: Some(name.to_owned()),
        ..DescriptorProto::default()
    };
    for line in fields {
        let field = field(line, &mut message.oneof_decl);
        debug_assert!(field.is_some(), "`{line}` is a field");
        message.field.extend(field);
    }
    message
}

fn field(line: &str, oneofs: &mut Vec<OneofDescriptorProto>) -> Option<FieldDescriptorProto> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let number = words.pop()?.parse().ok()?;
    words.pop().filter(|equals| *equals == "=")?;
    let name = words.pop()?;
    let type_name = words.pop()?;
    let (mut label, mut kind, mut oneof_index) = (Label::Optional, None, None);
    let mut before = words.into_iter();
    while let Some(word) = before.next() {
        match word {
            "repeated" => label = Label::Repeated,
            "enum" => kind = Some(Type::Enum),
            "oneof" => {
                let oneof = before.next()?;
                let known = oneofs.iter().position(|known| known.name() == oneof);
                let index = known.unwrap_or(oneofs.len());
                if known.is_none() {
                    oneofs.push(OneofDescriptorProto {
                        name: Some(oneof.to_owned()),
                        options: None,
                    });
                }
                oneof_index = Some(i32::try_from(index).ok()?);
            }
            _ => return None,
        }
    }
    let kind = kind.unwrap_or(match type_name {
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "bool" => Type::Bool,
        "uint32" => Type::Uint32,
        "uint64" => Type::Uint64,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "float" => Type::Float,
        "double" => Type::Double,
        _ => Type::Message,
    });
    let is_named = matches!(kind, Type::Message | Type::Enum);
    Some(FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(label.into()),
        r#type: Some(kind.into()),
        type_name: is_named.then(|| type_name.to_owned()),
        json_name: Some(camel_case(name)),
        oneof_index,
        ..FieldDescriptorProto::default()
    })
}

/// The same message, with others inside.
pub(super) fn with(
    message: DescriptorProto,
    nested: Vec<DescriptorProto>,
    enums: Vec<EnumDescriptorProto>,
) -> DescriptorProto {
    DescriptorProto {
        nested_type: nested,
        enum_type: enums,
        ..message
    }
}

/// What stands for one entry of a map.
pub(super) fn map_entry(name: &str, key: &str, value: &str) -> DescriptorProto {
    DescriptorProto {
        options: Some(MessageOptions {
            map_entry: Some(true),
            ..MessageOptions::default()
        }),
        ..message(
            name,
            &[&format!("{key} key = 1"), &format!("{value} value = 2")],
        )
    }
}

pub(super) fn numbers(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
    let value = |(name, number): &(&str, i32)| EnumValueDescriptorProto {
        name: Some((*name).to_owned()),
        number: Some(*number),
        options: None,
    };
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: values.iter().map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}

/// A method: its name, what it takes and what it gives.
pub(super) fn method(name: &str, takes: &str, gives: &str) -> MethodDescriptorProto {
    let streamed = |text: &str| text.strip_prefix("stream ").map(|_| true);
    let bare = |text: &str| text.strip_prefix("stream ").unwrap_or(text).to_owned();
    MethodDescriptorProto {
        name: Some(name.to_owned()),
        input_type: Some(bare(takes)),
        output_type: Some(bare(gives)),
        client_streaming: streamed(takes),
        server_streaming: streamed(gives),
        ..MethodDescriptorProto::default()
    }
}

pub(super) fn service(name: &str, methods: Vec<MethodDescriptorProto>) -> ServiceDescriptorProto {
    ServiceDescriptorProto {
        name: Some(name.to_owned()),
        method: methods,
        options: None,
    }
}

/// How JSON calls a field.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |camel, word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        camel + &first.into_iter().chain(letters).collect::<String>()
    })
}
