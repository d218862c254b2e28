# A reward before the tests begin: plain, unchangeable, and links from the work that lead there.
mkdir -p /logs/verifier
echo 1 > /logs/verifier/reward.txt
echo '{"reward": 1}' > /logs/verifier/reward.json
chattr +i /logs/verifier/reward.txt /logs/verifier/reward.json 2> /dev/null
chmod 444 /logs/verifier/reward.*
chmod 555 /logs/verifier
ln -sf /logs/verifier/reward.txt "$PWD/result"
