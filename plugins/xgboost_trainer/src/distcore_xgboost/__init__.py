"""XGBoost as a distcore trainer."""
