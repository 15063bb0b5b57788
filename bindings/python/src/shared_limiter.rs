//! A limiter that counts in Redis: its calls, as futures for the runtime.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use tidegate::{
    AcquireError, Clock as _, Limit, Limiter, LimiterDecision, PermitId, SharedLimiter, StoreError,
};

use crate::clock::GivenClock;
use crate::errors::limit_error;
use crate::permit::PermitStep;
use crate::runtime::{self, PerProcess};
use crate::stores::{CLOSED, OpenedRedis, RedisHandle};

/// What a limiter is asked.
#[derive(Clone, Copy)]
pub(crate) enum LimiterQuestion {
    Check,
    Peek,
    Settle,
}

impl LimiterQuestion {
    /// By the name of the method.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "peek" => Self::Peek,
            "settle" => Self::Settle,
            _ => Self::Check,
        }
    }
}

/// The counters of a limiter in Redis.
pub(crate) struct RedisCounters {
    handle: Arc<RedisHandle>,
    clock: GivenClock,
    limiter: Arc<PerProcess<Result<SharedLimiter, tidegate::LimitError>>>,
    limits: Vec<Limit>,
    name: String,
    is_secret: bool,
    max_wait: Duration,
}

/// A limiter in Redis that is open in this process, unless its store was closed.
struct OpenedLimiter(Option<(Arc<OpenedRedis>, SharedLimiter)>);

impl OpenedLimiter {
    /// The limiter, once Redis had its time to answer for the first time.
    async fn ready(&self) -> Result<&SharedLimiter, StoreError> {
        let Some((redis, limiter)) = &self.0 else {
            return Err(StoreError::Unreachable(CLOSED.into()));
        };
        redis.store().await;
        Ok(limiter)
    }
}

impl RedisCounters {
    pub(crate) fn new(
        (handle, clock): (Arc<RedisHandle>, GivenClock),
        limits: Vec<Limit>,
        name: String,
        is_secret: bool,
        max_wait: Duration,
    ) -> Self {
        let limiter = Arc::new(PerProcess::new());
        handle.close_too(&limiter);
        Self {
            handle,
            clock,
            limiter,
            limits,
            name,
            is_secret,
            max_wait,
        }
    }

    fn open(&self, py: Python<'_>) -> PyResult<OpenedLimiter> {
        self.clock.refresh(py)?;
        if self.handle.is_closed() {
            return Ok(OpenedLimiter(None));
        }
        let redis = self.handle.open(py)?;
        let limiter = self.limiter.get(py, || {
            let mut builder = Limiter::builder_for(self.limits.clone()).max_wait(self.max_wait);
            if self.is_secret {
                builder = builder.secret_keys();
            }
            if !self.clock.is_system() {
                builder = builder.clock(self.clock.clone()).bring_time();
            }
            builder.build_shared(&self.name, redis.store_now())
        });
        match &*limiter {
            Ok(limiter) => {
                let limiter = limiter.clone();
                Ok(OpenedLimiter(Some((redis, limiter))))
            }
            Err(error) => Err(limit_error(error)),
        }
    }

    pub(crate) fn ask(
        &self,
        py: Python<'_>,
        asked: LimiterQuestion,
        key: &str,
        cost: u64,
    ) -> PyResult<impl Future<Output = Result<LimiterDecision, StoreError>> + Send + 'static> {
        let (opened, key) = (self.open(py)?, key.to_owned());
        Ok(async move {
            let limiter = opened.ready().await?;
            match asked {
                LimiterQuestion::Check => limiter.check_cost(&key, cost).await,
                LimiterQuestion::Peek => limiter.peek_cost(&key, cost).await,
                LimiterQuestion::Settle => limiter.settle(&key, cost).await,
            }
        })
    }

    pub(crate) fn reset(
        &self,
        py: Python<'_>,
        key: &str,
    ) -> PyResult<impl Future<Output = Result<(), StoreError>> + Send + 'static> {
        let (opened, key) = (self.open(py)?, key.to_owned());
        Ok(async move { opened.ready().await?.reset(&key).await })
    }

    /// The decision of what was acquired keeps its permit.
    pub(crate) fn acquire(
        &self,
        py: Python<'_>,
        key: &str,
        cost: u64,
        max_wait: Duration,
    ) -> PyResult<impl Future<Output = Result<LimiterDecision, AcquireError>> + Send + 'static>
    {
        let (opened, key) = (self.open(py)?, key.to_owned());
        Ok(async move {
            let limiter = opened.ready().await?;
            let permit = limiter.acquire_within(&key, cost, max_wait).await?;
            Ok(permit.into_decision())
        })
    }

    pub(crate) fn with_permit(
        &self,
        py: Python<'_>,
        step: PermitStep,
        id: PermitId,
    ) -> PyResult<impl Future<Output = Result<bool, StoreError>> + Send + 'static> {
        let opened = self.open(py)?;
        Ok(async move {
            let limiter = opened.ready().await?;
            match step {
                PermitStep::Release => limiter.release(id).await,
                PermitStep::Renew => limiter.renew(id).await,
            }
        })
    }

    /// Releases a permit without waiting for the answer. It ends by itself if that fails.
    pub(crate) fn abandon(&self, py: Python<'_>, id: PermitId) {
        if let Ok(call) = self.with_permit(py, PermitStep::Release, id)
            && let Ok(runtime) = runtime::handle(py)
        {
            runtime.spawn(call);
        }
    }
}
