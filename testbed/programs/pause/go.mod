module tidegate.dev/testbed/pause

go 1.26
