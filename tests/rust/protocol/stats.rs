mod bounding_box;
mod collect;
mod read;
