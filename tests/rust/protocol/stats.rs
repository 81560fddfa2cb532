mod collect;
mod read;
