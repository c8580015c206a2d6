module tidegate.dev/tests/testbed/web

go 1.26
