mod char_lengths;
mod conform;
mod many_partitions;
mod options;
mod partition;
mod rules;
mod writer;
