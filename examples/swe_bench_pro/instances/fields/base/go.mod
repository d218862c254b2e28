module example.org/tiny/fields

go 1.19
