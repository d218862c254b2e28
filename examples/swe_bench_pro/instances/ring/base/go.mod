module example.org/tiny/ring

go 1.19
