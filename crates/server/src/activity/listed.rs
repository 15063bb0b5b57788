//! Clients that other instances list: which of them has seen a client that this instance has not.

use tidegate_activity::KeyPart;
use tidegate_redis::RedisStore;

use super::ServerActivity;

impl ServerActivity {
    /// The id of an instance whose published tables list a key that is meant, by its rule and its parts.
    pub(crate) async fn find_elsewhere(
        &self,
        redis: Option<&RedisStore>,
        is_meant: impl Fn(&str, &[KeyPart]) -> bool + Send,
    ) -> Option<String> {
        let others = self.others(redis).await;
        let lists = |other: &&super::OtherInstance| {
            let mut rules = other.part.rules.iter();
            rules.any(|rule| {
                let mut names = rule.names.iter();
                names.any(|named| is_meant(&rule.rule, named.name.parts()))
            })
        };
        others.iter().find(lists).map(|other| other.id.clone())
    }
}
