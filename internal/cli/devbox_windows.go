package cli

func devboxMain([]string) int { return exitFailed }
