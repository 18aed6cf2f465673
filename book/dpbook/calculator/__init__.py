"""What the page with the calculator shows.

``published`` -- its times, compared with steps that others have timed.
"""
