//! Servers that do nothing but speak a protocol: the ceilings, and what is behind a gateway.
//!
//! `bare axum|hyper|tonic|resp` serves on one thread, and prints where it listens.

mod json;
mod resp;
mod small;
mod tonic_answer;

fn main() {
    let kind = std::env::args().nth(1).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        match kind.as_str() {
            "axum" => json::serve().await,
            "hyper" => small::serve().await,
            "tonic" => tonic_answer::serve().await,
            "resp" => resp::serve().await,
            _ => panic!("unknown server `{kind}`: give axum, hyper, tonic or resp"),
        }
    });
}

/// A port of this machine, and the line that says which.
async fn listen(protocol: &str) -> tokio::net::TcpListener {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("its address");
    println!("listening {protocol}={address}");
    listener
}
