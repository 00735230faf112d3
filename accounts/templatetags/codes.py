"""A tag for the pages where a code is asked for."""

from django import template

from accounts.codes import ways_of_codes

register = template.Library()
register.simple_tag(ways_of_codes)
