//! The calls of a store for the activity of instances, which `activity.rs` makes.

use tidegate_core::StoreError;

use crate::activity::PublishedActivity;
use crate::store::RedisStore;

impl RedisStore {
    /// Publishes the activity of an instance, at most [`MOST_ACTIVITY`](crate::MOST_ACTIVITY) bytes. It lasts for 30
    /// seconds. Returns the secret seed that the instances share: that of the first that published, which is `seed` if
    /// there was none.
    pub async fn publish_activity(
        &self,
        instance: &str,
        bytes: &[u8],
        seed: u128,
    ) -> Result<u128, StoreError> {
        let board = self.activity_board();
        board.publish(self.router(), instance, bytes, seed).await
    }

    /// The published activity of the instances, without that of the caller.
    pub async fn read_activity(&self, own: &str) -> Result<Vec<PublishedActivity>, StoreError> {
        self.activity_board().read(self.router(), own).await
    }

    /// Withdraws the published activity of an instance.
    pub async fn withdraw_activity(&self, instance: &str) -> Result<(), StoreError> {
        let board = self.activity_board();
        board.withdraw(self.router(), instance).await
    }
}
