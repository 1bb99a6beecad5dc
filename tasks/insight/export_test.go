package insight

import "time"

func init() { indexTimeout, indexesTimeout = 60_000, time.Minute }
