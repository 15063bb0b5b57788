//! The prices of models: read at the start, and again when their file changes.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_tower::PriceLookup;
use tidegate_usage::{MoneyUnit, PriceList};

use crate::config::{Config, read_prices};
use crate::run_error::RunError;
use crate::watch::FileWatch;

/// The prices in force, and the file that they come from.
pub(crate) struct KeptPrices {
    list: Arc<ArcSwap<PriceList>>,
    source: Option<PriceSource>,
}

struct PriceSource {
    file: PathBuf,
    unit: MoneyUnit,
    watch: FileWatch,
}

impl KeptPrices {
    /// Reads the prices, if there are any.
    pub(crate) fn open(config: &Config) -> Result<Self, RunError> {
        let usage = config.gateway.as_ref().map(|gateway| &gateway.usage);
        let unit = usage.map(|usage| usage.money_unit).unwrap_or_default();
        let Some(file) = usage.and_then(|usage| usage.prices_file.clone()) else {
            let list = Arc::new(ArcSwap::from_pointee(PriceList::new(unit)));
            return Ok(Self { list, source: None });
        };
        // The watch starts before the first read, so that no change is missed.
        let watch = FileWatch::new(&file);
        let list = read_prices(&file, unit).map_err(RunError::Prices)?;
        Ok(Self {
            list: Arc::new(ArcSwap::from_pointee(list)),
            source: Some(PriceSource { file, unit, watch }),
        })
    }

    /// Finds the prices in force.
    pub(crate) fn lookup(&self) -> PriceLookup {
        let list = Arc::clone(&self.list);
        Arc::new(move || list.load_full())
    }

    /// Reads the prices again when their file changes. After an error the previous ones stay in force.
    pub(crate) async fn follow(prices: Option<Self>) {
        let Some((list, mut source)) =
            prices.and_then(|prices| Some((prices.list, prices.source?)))
        else {
            return;
        };
        loop {
            source.watch.changed().await;
            let (file, unit) = (source.file.clone(), source.unit);
            let read = tokio::task::spawn_blocking(move || read_prices(&file, unit)).await;
            match read {
                Ok(Ok(prices)) => {
                    list.store(Arc::new(prices));
                    tracing::info!(file = %source.file.display(), "new prices are in force");
                }
                Ok(Err(problem)) => {
                    tracing::error!("the previous prices stay in force: {problem}");
                }
                Err(_) => {}
            }
        }
    }
}
