cat > /app/service/feature_flags.py <<'EOF'
"""Features that are rolled out to a share of the users, by a hash of user and feature."""

import hashlib
import json


class FeatureFlagService:
    def __init__(self, config_path):
        with open(config_path) as source:
            self.config = {feature["feature_name"]: feature for feature in json.load(source)}

    def is_feature_enabled(self, feature_name, user_id):
        feature = self.config.get(feature_name)
        if feature is None or not feature.get("enabled", True):
            return False
        digest = hashlib.sha256(f"{feature_name}:{user_id}".encode()).hexdigest()
        return int(digest, 16) % 100 < feature.get("rollout_percentage", 0)

    is_enabled = is_feature_enabled
EOF
printf 'FIXED_FILE=/app/service/feature_flags.py\nISSUE=percentage_calculation\n' > /app/solution.txt
