mod collect;
