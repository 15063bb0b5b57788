//! Instances ask each other: each question is answered once, soon or not at all, whatever else is in Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_redis::{MOST_QUESTION, RedisStore};
use tidegate_testkit::redis::{Cluster, RedisServer};

use crate::store as open;

const INSTANCE: &str = "0123abcd";
const ASKED: &str = "tg:{activity}:0123abcd:asked";

/// Answers with the length of each question, and counts them.
fn answering(store: &RedisStore) -> (Arc<AtomicUsize>, tokio::task::JoinHandle<()>) {
    let (store, count) = (store.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let task = tokio::spawn(async move {
        let answer = |question: Vec<u8>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { question.len().to_string().into_bytes() }
        };
        store.answer_questions(INSTANCE, answer).await;
    });
    (count, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_by_the_instance_that_it_is_for() {
    let (server, cluster) = (RedisServer::start(), Cluster::start());
    let urls = [
        format!("redis://{}", server.address()),
        format!("redis+cluster://{}", cluster.nodes()[0].address()),
    ];
    for url in urls {
        let (asking, answerer) = (open(&url).await, open(&url).await);
        let (count, task) = answering(&answerer);
        for length in [0, 7, MOST_QUESTION] {
            let question = vec![b' '; length];
            let answer = asking.ask_instance(INSTANCE, &question).await.unwrap();
            assert_eq!(answer, Some(length.to_string().into_bytes()));
        }
        assert_eq!(count.load(Ordering::SeqCst), 3);
        let longer = vec![0; MOST_QUESTION + 1];
        assert_eq!(asking.ask_instance(INSTANCE, &longer).await.unwrap(), None);
        for other in ["", "answer", "../x", "0123abcg"] {
            assert_eq!(asking.ask_instance(other, b"x").await.unwrap(), None);
        }
        task.abort();
    }
    let left: Vec<String> = server.query(&["KEYS", "*asked"]);
    assert!(left.is_empty(), "{left:?}");
    for key in server.query::<Vec<String>>(&["KEYS", "*answer*"]) {
        let lasts: i64 = server.query(&["PTTL", &key]);
        assert!((1..=10_000).contains(&lasts), "{key}: {lasts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_or_was_written_by_another_program_is_not_answered() {
    let server = RedisServer::start();
    let store = open(&format!("redis://{}", server.address())).await;
    let id = "0123456789abcdef0123456789abcdef";
    let old = format!("1794770000000 {id} old");
    for garbage in [&old, "", "\u{1}garbage", "1 2 3"] {
        let _: i64 = server.query(&["RPUSH", ASKED, garbage]);
    }
    let (count, task) = answering(&store);
    let answer = store.ask_instance(INSTANCE, b"new").await.unwrap();
    assert_eq!(answer.as_deref(), Some(&b"3"[..]));
    assert_eq!(count.load(Ordering::SeqCst), 1, "the new one alone");
    let answers: i64 = server.query(&["EXISTS", &format!("tg:{{activity}}:answer:{id}")]);
    assert_eq!(answers, 0);
    // A key of another type is replaced when the next question comes.
    task.abort();
    let _ = task.await;
    let _: String = server.query(&["SET", ASKED, "text"]);
    let (_, task) = answering(&store);
    let answer = store.ask_instance(INSTANCE, b"again").await.unwrap();
    assert_eq!(answer.as_deref(), Some(&b"5"[..]));
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_does_not_listen_is_waited_for_a_short_while() {
    let server = RedisServer::start();
    let store = open(&format!("redis://{}", server.address())).await;
    // No more questions wait than can be answered.
    let asking = (0..20).map(|_| store.ask_instance(INSTANCE, b"x"));
    let mut answers = std::pin::pin!(futures_util::future::join_all(asking));
    let mut most = 0;
    let looking = async {
        loop {
            tokio::select! {
                answers = &mut answers => break answers,
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
            most = server.query::<u64>(&["LLEN", ASKED]).max(most);
            // None lasts longer than its caller waits; -2: the list is gone.
            let lasts: i64 = server.query(&["PTTL", ASKED]);
            assert!(lasts == -2 || (0..=2_000).contains(&lasts), "{lasts}");
        }
    };
    let answers = tokio::time::timeout(Duration::from_secs(20), looking).await;
    let answers = answers.unwrap();
    assert_eq!(most, 16);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(None))));
}
