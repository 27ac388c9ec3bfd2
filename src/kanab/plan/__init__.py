"""What may be counted: experiments, covariates, metrics, periods and k. Others import `Plan` and `read_plan`."""
