"""A live page about runs: what is played at the moment, rates, errors and the episodes that ended.

    tail     reads run folders while they grow
    server   serves the page and its data on this machine only
    command  is envsuite watch

All text from run folders is untrusted. It reaches the page as JSON with escaped control characters,
the script writes text nodes only, and the content policy allows only the page's own script.
"""
