use std::fmt::Write; use std::hint::black_box;
use tidegate_bench::contenders::*;
fn main(){ let which=std::env::args().nth(1).unwrap(); let c: Box<dyn Contender> = if which=="t" {Box::new(Tidegate::new())} else {Box::new(Governor::new())}; let mut k=String::new();
 for i in 0..100_000u32 { k.clear(); let _=write!(k,"user:{}",i%1000); black_box(c.check(&k)); } }
