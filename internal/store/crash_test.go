package store_test

func child(job string) {}
