use std::fmt::Write; use std::time::Instant; use std::hint::black_box;
use tidegate_bench::{contenders::*, keys::*};
fn main(){ let t=Tidegate::new(); let g=Governor::new(); let n=1_000_000u32; let mut k=String::new();
 for i in 0..n { k.clear(); let _=write!(k,"user:{i}"); t.check(&k); g.check(&k); }
 for s in [Spread::Uniform(1),Spread::Uniform(n),Spread::Zipf(n)] { let s=s.stream(1_000_000,7); let mut b=[f64::MAX;2];
 for _ in 0..6 { for (j,c) in [&t as &dyn Contender,&g].iter().enumerate() { let st=Instant::now(); for i in &s { k.clear(); let _=write!(k,"user:{i}"); black_box(c.check(&k)); } b[j]=b[j].min(st.elapsed().as_nanos() as f64/s.len() as f64); } } print!("{:.1}/{:.1}={:.2} ",b[0],b[1],b[0]/b[1]); } println!(); }
